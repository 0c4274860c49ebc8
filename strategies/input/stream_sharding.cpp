#include "lockstep/strategies/input/stream_sharding.h"

#include <cstddef>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Describes the options that must be the same on all workers.
std::vector<std::string> describe_stream(const DistributeStreamOptions& options) {
  std::vector<std::string> lines{"batches of " + std::to_string(options.global_batch_size) + " of a stream" +
                                 (options.drop_remainder ? ", a short one dropped" : "") + ", auto_shard " +
                                 auto_shard_name(options.auto_shard) +
                                 (options.shuffle_seed
                                      ? ", shuffled with seed " + std::to_string(*options.shuffle_seed) +
                                            " in a window of " + std::to_string(options.shuffle_window)
                                      : "") +
                                 ", " + std::to_string(options.files.size()) + " files"};
  for (size_t i = 0; i < options.files.size(); ++i)
    lines.push_back("file " + std::to_string(i) + " '" + options.files[i] + "'");
  return lines;
}

/// Returns the number of examples of the worker's replicas.
int64_t share_by_weights(int64_t size, const InputPlacement& placement) {
  const auto bounds = placement.cut(size);
  const auto first = static_cast<size_t>(placement.first_local_replica());
  return bounds[first + static_cast<size_t>(placement.num_local_replicas())] - bounds[first];
}

/// Throws on all workers if one of them would get no examples.
void check_shares(int64_t here, const DistributeStreamOptions& options, const InputPlacement& placement) {
  const auto shares = placement.gather ? placement.gather(here) : std::vector{here};
  for (size_t worker = 0; worker < shares.size(); ++worker) {
    if (shares[worker] > 0) continue;
    throw InvalidArgument(
        "[distribute_dataset] expected a global batch size that has an example for each of " +
        std::to_string(placement.num_workers) + " workers, but of " +
        std::to_string(options.global_batch_size) + " worker " + std::to_string(worker) + " gets none");
  }
}

}  // namespace

StreamSharding stream_sharding_of(const DistributeStreamOptions& options, const InputPlacement& placement) {
  const int64_t size = options.global_batch_size;
  if (placement.check_same) placement.check_same("dataset", describe_stream(options));
  if (size < 1) {
    throw InvalidArgument("[distribute_dataset] expected a global batch size of 1 or more, but got " +
                          std::to_string(size));
  }
  if (options.shuffle_seed && options.shuffle_window < 1) {
    throw InvalidArgument(
        "[distribute_dataset] expected a shuffle window of 1 or more to shuffle a stream, but got " +
        std::to_string(options.shuffle_window));
  }
  const bool needs_whole = !placement.has_whole_replicas && options.auto_shard == AutoShardPolicy::kAuto;
  const auto policy =
      needs_whole ? AutoShardPolicy::kData
                  : resolve_auto_shard(options.auto_shard, options.files.size(), placement.num_workers);
  StreamSharding share{
      .context = {.num_replicas_in_sync = placement.num_replicas, .files = options.files, .batch_size = size},
      .is_whole = policy == AutoShardPolicy::kData,
      .drop_remainder = options.drop_remainder};
  if (share.is_whole) return share;
  check_whole_replicas(placement, "distribute_dataset with auto_shard " + auto_shard_name(policy));

  auto& context = share.context;
  context.num_input_pipelines = placement.num_workers;
  context.input_pipeline_id = placement.worker;
  if (policy == AutoShardPolicy::kFile)
    context.files = files_of_worker(options.files, placement.worker, placement.num_workers);
  context.batch_size = placement.shares
                           ? share_by_weights(size, placement)
                           : share_of_global_batch(size, placement.first_local_replica(),
                                                   placement.num_local_replicas(), placement.num_replicas);
  check_shares(context.batch_size, options, placement);
  return share;
}

}  // namespace lockstep
