#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Measures the memory that one step of a fit needs besides what is there between steps. On GPUs, it reads
/// the allocator's peak. On CPUs, it can have LibTorch's allocator report all that replicas allocate and free
/// meanwhile. That step is the third of the process: optimizers make their state in the first, and buckets
/// are laid out again before the second.
class StepMemory {
 public:
  explicit StepMemory(bool counts_on_cpus) : counts_on_cpus_(counts_on_cpus) {}
  ~StepMemory();
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  void on_step_begin(const FitState& state);
  /// Returns whether this was the step.
  bool on_step_end(const FitState& state);
  /// Returns the bytes, absent before that step, and if nothing was counted.
  std::optional<int64_t> bytes() const { return bytes_; }

  /// Ends a count in this thread, if there is one: the allocator reports to one object only, and a profiler
  /// refuses to begin beside another one.
  static void make_way_for_profiler();

 private:
  class Counter;

  void stop_counting();

  bool counts_on_cpus_;
  std::shared_ptr<Counter> counter_;
  int64_t num_steps_ = 0;
  bool is_done_ = false;
  std::optional<int64_t> bytes_;
};

}  // namespace lockstep
