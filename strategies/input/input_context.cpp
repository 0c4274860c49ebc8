#include "lockstep/strategies/input/input_context.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size < 1 || global_batch_size % num_replicas_in_sync != 0) {
    throw InvalidArgument("[InputContext] expected a global batch size that " +
                          std::to_string(num_replicas_in_sync) + " replicas divide, but got " +
                          std::to_string(global_batch_size));
  }
  return global_batch_size / num_replicas_in_sync;
}

std::optional<int64_t> examples_of_step(const InputPlacement& placement, std::optional<int64_t> here,
                                        bool is_whole) {
  constexpr int64_t kEnded = -1;
  const auto examples = placement.gather(here.value_or(kEnded));
  if (std::all_of(examples.begin(), examples.end(), [](int64_t count) { return count == kEnded; }))
    return std::nullopt;
  if (!is_whole) {
    return std::accumulate(examples.begin(), examples.end(), int64_t{0},
                           [](int64_t total, int64_t count) { return total + std::max<int64_t>(count, 0); });
  }
  const auto text = [&](size_t worker) {
    return "worker " + std::to_string(worker) + "'s " +
           (examples[worker] == kEnded ? "has ended"
                                       : "gave " + std::to_string(examples[worker]) + " examples");
  };
  for (size_t worker = 1; worker < examples.size(); ++worker) {
    if (examples[worker] == examples[0]) continue;
    throw ClusterError(
        "[distribute_dataset] expected the same stream on all workers, of which each keeps its part "
        "(AutoShardPolicy::kData), but where " +
        text(0) + ", " + text(worker));
  }
  return examples[0];
}

int InputPlacement::first_local_replica() const {
  return replicas ? *std::min_element(replicas->begin(), replicas->end()) : first_replica;
}

int InputPlacement::num_local_replicas() const {
  if (!replicas) return static_cast<int>(devices->size());
  return static_cast<int>(std::set<int>(replicas->begin(), replicas->end()).size());
}

std::vector<int64_t> InputPlacement::cut(int64_t n) const {
  return shares ? shares->cut(n) : cut_equally(n, num_replicas);
}

std::vector<int64_t> InputPlacement::cut_among_local(int64_t n) const {
  return shares ? shares->cut_among(n, first_local_replica(), num_local_replicas())
                : cut_equally(n, num_local_replicas());
}

void check_whole_replicas(const InputPlacement& placement, const std::string& who) {
  if (placement.has_whole_replicas) return;
  throw InvalidArgument(
      "[" + who +
      "] expected all ranks of a replica in one process, but some are in another, which would "
      "read other examples: use distribute_dataset() with examples by index, or with "
      "auto_shard data");
}

}  // namespace lockstep
