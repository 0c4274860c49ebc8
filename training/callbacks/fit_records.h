#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// An epoch's logs as a record; `seconds` is what it took, validation included.
EpochRecord epoch_record(const FitState& state, double seconds);

/// Makes records of steps, each of what came since the one before it in the same epoch.
class StepRecorder {
 public:
  /// Of an epoch that is resumed in its middle, what came before belongs to no step.
  void begin_epoch(const FitState& state);
  /// The mean loss of this process's replicas, the speed over all workers, and the learning rate. Waits for
  /// the devices.
  StepRecord next(const FitState& state);
  /// Since the epoch began, without the time between two processes of it.
  double seconds() const;

 private:
  struct Totals {
    double seconds = 0;
    double loss_sum = 0;  // of this process's replicas, as the number of losses
    double losses = 0;
    int64_t examples = 0;
    int64_t roll_backs = 0;
  };

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Totals last_;
};

}  // namespace lockstep
