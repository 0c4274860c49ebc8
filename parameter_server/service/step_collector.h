#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/parameter_server/service/parameter_requests.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Holds the gradients that workers give to a step that all make together, until all of them are there.
/// Thread-safe.
class StepCollector {
 public:
  /// Takes a slot's gradients, in one message or in several. What a slot gives a second time, since who had
  /// it was lost, takes the place of the first. Those of an earlier step than the newest are dropped.
  void add(const ContributeShards& contribution);

  struct Collected {
    std::vector<uint32_t> missing;         ///< slots; nothing is taken where there are any
    std::vector<PushShards::Part> summed;  ///< by shard, in alphabetical order
  };
  /// Takes the sums of slots 0 to `num_slots` - 1, added in their order, so that they have the same bits
  /// whoever came first. A shard that some slots have no gradient for gets the others' sum. Nothing is
  /// missing of a step that was taken before, and nothing there. Throws InvalidArgument for a further slot,
  /// for more than 65,536, and naming the shard for gradients that cannot be added.
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

/// The sum of gradients of the same shard, added in their order. Of gradients by rows the rows are united.
/// Throws InvalidArgument where shapes, dtypes, rates or versions differ, or one is by rows and another is
/// not.
PushShards::Part sum_parts(const std::vector<PushShards::Part>& parts);

}  // namespace lockstep
