#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_requests.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Holds the gradients that workers contribute to a joint step until all have arrived. Thread-safe.
class StepCollector {
 public:
  /// Adds a slot's gradients, in one or several messages. If a slot's worker was lost and its gradients come
  /// again, they replace the first. Gradients of a step before the newest are dropped.
  void add(const ContributeShards& contribution);

  struct Collected {
    std::vector<uint32_t> missing;         ///< missing slots; if there are any, nothing is taken
    std::vector<PushShards::Part> summed;  ///< one part per shard, in alphabetical order
  };
  /// Takes the sums of slots 0 to `num_slots` - 1. They are added in this order, so the bits do not depend on
  /// which came first. If some slots have no gradient for a shard, it gets the sum of the others. For a step
  /// that was already taken, both results are empty. Throws InvalidArgument if there is a slot beyond these,
  /// if `num_slots` exceeds 65,536, and (naming the shard) if gradients cannot be added.
  Collected take(uint64_t step, uint32_t num_slots);

 private:
  struct Slot {
    bool is_whole = false;
    std::map<std::string, PushShards::Part> parts;  // by shard
  };

  Mutex mutex_;
  uint64_t step_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, Slot> slots_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Sums gradients of one shard, added in the given order. For gradients by rows, the result has the union of
/// their rows. Throws InvalidArgument if shapes, dtypes, learning rates or versions differ, or if only some
/// are by rows.
PushShards::Part sum_parts(const std::vector<PushShards::Part>& parts);

}  // namespace lockstep
