#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/training/planning/internal/simulated_memory.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// A range of a record's events.
struct EventRange {
  int begin = 0;
  int end = 0;
};

/// The memory of sharded units in a step: whole parameters while a unit computes, and gradients while they
/// are summed. In stages below 3, there are no units, and calls do nothing.
class UnitMemory {
 public:
  /// Of the uses in these ranges, which are in the order of events. All that it is given must outlive it.
  UnitMemory(const RecordedStep& record, const TrainingLayout& layout, SimulatedMemory& memory,
             const std::vector<EventRange>& ranges);

  /// Begins a micro-batch. `has_earlier`: gradients of another one are there already, and are added to.
  void restart(bool has_earlier);
  /// Call them for each event: before it is handled, and afterwards.
  void before(int event);
  void after(int event);
  /// Call them when a call's forward or backward begins, when its forward ends, and when its backward has.
  void begin_use(int call);
  void end_forward(int call);
  void end_backward(int call);
  /// Ends what is under way when nothing follows.
  void finish();

  bool is_in_unit(int parameter) const;

 private:
  struct Use {
    int call = 0;
    bool is_backward = false;
  };
  struct Sum {
    int64_t sent = 0;
    int64_t own = 0;
    int ends_at = 0;
  };

  void find_uses(const std::vector<EventRange>& ranges);
  void find_reductions();
  bool is_unit(int block) const { return layout_.stage == 3 && unit_bytes_[static_cast<size_t>(block)] > 0; }
  int unit_of(size_t use) const;
  void set_whole(int first, int second);
  void end_use();
  void reduce(int event, int call);
  void end_sum();

  const RecordedStep& record_;
  const TrainingLayout& layout_;
  SimulatedMemory& memory_;
  int64_t sharing_ = 1;              // replicas that share the memory of whole units
  std::vector<int64_t> unit_bytes_;  // for each block: its parameters' bytes with padding
  std::vector<Use> uses_;            // of units, in their order
  std::vector<int> reductions_;      // for each event: the call whose gradients are complete then, or -1

  bool has_earlier_ = false;
  size_t use_ = 0;  // that comes next
  int64_t whole_bytes_ = 0;
  int64_t under_way_bytes_ = 0;
  std::optional<Sum> sum_;
};

}  // namespace lockstep
