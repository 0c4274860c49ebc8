#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Returns a record's number of something as an index.
inline size_t at(int number) {
  return static_cast<size_t>(number);
}

/// The memory of a recorded step in a layout, by part, while someone goes through its events: what is there
/// now, and the most that was. Knows sizes, and how recompute() changes the allocations of a block.
class SimulatedMemory {
 public:
  using Part = int64_t MemoryPlan::*;

  /// Both must outlive it.
  SimulatedMemory(const RecordedStep& record, const TrainingLayout& layout);

  /// Begins with `kept`, and no allocations.
  void restart(const MemoryPlan& kept);
  /// Forgets the most that was there before.
  void restart_most();
  const MemoryPlan& now() const { return now_; }
  const MemoryPlan& most() const { return most_; }

  void add(Part part, int64_t bytes);
  void allocate(int allocation);
  void drop(int allocation);
  /// Drops it as soon as nothing pins it.
  void free(int allocation);
  void pin(int allocation);
  void unpin(int allocation);
  bool is_held(int allocation) const { return is_held_[at(allocation)]; }

  bool is_recomputed(int call) const { return is_recomputed_[at(record_.calls[at(call)].block)]; }
  /// Call them at the begin and the end of a call's forward, and of its backward, which begins with `event`.
  void begin_call(int call);
  void end_call(int call);
  void begin_backward(int event, int call);
  void end_backward(int call);

  /// Returns the bytes of an allocation, or of a parameter.
  int64_t bytes_of_allocation(int allocation) const { return allocation < 0 ? 0 : sizes_[at(allocation)]; }
  int64_t bytes_of_parameter(int parameter) const;

 private:
  Part part_of(int allocation) const;
  int64_t rounding_of(int allocation) const;

  const RecordedStep& record_;
  const int64_t allocation_unit_;
  std::vector<int64_t> sizes_;       // of allocations
  std::vector<bool> is_recomputed_;  // for each block
  MemoryPlan now_;
  int64_t total_ = 0;
  MemoryPlan most_;
  int64_t most_total_ = -1;
  std::vector<bool> is_held_;  // allocations
  std::vector<int> pins_;      // allocations that something else needs
  std::vector<bool> is_due_;   // freed, but for their pins
};

}  // namespace lockstep
