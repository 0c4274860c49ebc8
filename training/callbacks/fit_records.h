#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Returns an epoch's logs as a record; `seconds` is its duration, validation included.
EpochRecord epoch_record(const FitState& state, double seconds);

/// Makes records of steps. Each covers the steps since the previous record of the same epoch.
///
/// Example:
///
///     void on_epoch_begin(FitState& state) override { recorder_.begin_epoch(state); }
///     void on_step_end(FitState& state) override { records_.push_back(recorder_.next(state)); }
class StepRecorder {
 public:
  /// Call it when an epoch begins. If the epoch is resumed midway, its steps before that are in no record.
  void begin_epoch(const FitState& state);
  /// Returns the mean loss over this process's replicas, the speed over all workers, and the learning rate.
  /// Waits for the devices.
  StepRecord next(const FitState& state);
  /// Returns the seconds since the epoch began; if it was resumed, without the time between the two
  /// processes.
  double seconds() const;

 private:
  struct Totals {
    double seconds = 0;
    double loss_sum = 0;  // over this process's replicas, like `losses`
    double losses = 0;
    int64_t examples = 0;
    int64_t roll_backs = 0;
  };

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Totals last_;
};

}  // namespace lockstep
