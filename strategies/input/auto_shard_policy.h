#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The division of a stream's examples among the workers, as in tf.distribute. With one worker, all
/// policies give the same batches.
enum class AutoShardPolicy {
  kAuto,  ///< kFile if there is a file for each worker, else kData.
  /// The stream does it: each worker draws its share of the global batch from its own stream.
  kOff,
  /// All workers read the same stream, and each keeps its replicas' part of every global batch.
  kData,
  /// Each worker reads its own files, and draws its share of the global batch from them.
  kFile,
};

/// Returns `auto`, `off`, `data` or `file`.
std::string auto_shard_name(AutoShardPolicy policy);

/// Resolves kAuto for this number of files, and returns other policies unchanged. Throws InvalidArgument for
/// kFile with fewer files than workers.
AutoShardPolicy resolve_auto_shard(AutoShardPolicy policy, size_t num_files, int num_workers);

/// Returns the files of one worker. File i goes to worker i % `num_workers`.
std::vector<std::string> files_of_worker(const std::vector<std::string>& files, int worker, int num_workers);

/// Returns how many of `global_batch_size` examples replicas [first, first + count) of `num_replicas` draw
/// together. The shares of all workers sum to the global batch, and differ by less than one example per
/// replica.
int64_t share_of_global_batch(int64_t global_batch_size, int first, int count, int num_replicas);

}  // namespace lockstep
