#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/child_process.h"
#include "lockstep/benchmarks/scaling/measured_scaling.h"
#include "lockstep/benchmarks/scaling/scaling_options.h"

namespace lockstep::benchmarks {

/// Processes that train at the same time and know nothing of each other.
class ComputeJobs {
 public:
  ComputeJobs(const ScalingOptions& options, int num_processes);

  /// Blocks for `steps` steps of all processes at once; returns the mean over them. If each
  /// has a core of its own, they wait for the slowest of each step. If they share cores, a waiting process
  /// leaves its core to the slowest.
  ComputeSample run(int steps, int64_t num_examples);
  int num_tensors() const { return num_tensors_; }
  int64_t num_parameters() const { return num_parameters_; }

 private:
  std::vector<std::unique_ptr<ChildProcess>> processes_;
  int64_t num_parameters_ = 0;
  int num_tensors_ = 0;
};

/// Workers that sum gradients and do nothing else.
class ExchangeJobs {
 public:
  ExchangeJobs(const ScalingOptions& options, int num_processes, const std::string& compression,
               const ExchangeKind& kind);

  ExchangeSample run(int64_t bytes, int repetitions);
  double conversion_seconds(int64_t bytes, int repetitions);

 private:
  ChildProcess first_;
};

/// Workers that train together.
class TrainingJobs {
 public:
  TrainingJobs(const ScalingOptions& options, int num_processes, const std::string& compression,
               Overlap overlap);

  /// Seconds of one step, the mean over `steps`.
  double run(int steps);

 private:
  ChildProcess first_;
};

}  // namespace lockstep::benchmarks
