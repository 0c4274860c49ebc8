#pragma once

#include <cstdint>

#include "lockstep/benchmarks/child_process.h"

namespace lockstep::benchmarks {

/// A training job in a process of its own, ours or another library's.
///
/// The job prints `ready <trainable parameters>` when its first step is done. Then it answers each line that
/// it reads: a number of steps with the seconds that they took, `peak_memory` with the largest resident set
/// so far in bytes, and, if the job trains a pipeline, `loss` with the loss of the last step. It ends with
/// its input.
class RemoteTraining {
 public:
  /// Starts the job and blocks until its first step is done.
  explicit RemoteTraining(const Command& command);

  /// From before the process was started to the end of its first step.
  double seconds_to_first_step() const { return seconds_to_first_step_; }
  int64_t num_parameters() const { return num_parameters_; }

  /// Trains, and returns the job's own measure of the time.
  double seconds_for(int steps);
  int64_t peak_memory_bytes();
  /// Returns the loss of the last step.
  double loss();

 private:
  double ask(const std::string& request);

  std::chrono::steady_clock::time_point started_;  // before process_
  ChildProcess process_;
  double seconds_to_first_step_ = 0;
  int64_t num_parameters_ = 0;
};

}  // namespace lockstep::benchmarks
