#pragma once

#include <iostream>
#include <optional>
#include <string>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/benchmark_options.h"
#include "lockstep/benchmarks/child_process.h"
#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/report.h"

namespace lockstep::benchmarks {

// Parts that comparisons share.

/// Returns the work of a measurement.
WorkDone work_of(const BenchmarkOptions& options);

/// Prints the next part, so that a user, or a program that watches this one, sees progress.
void tell(const std::string& what);

/// `other` and `own` each have `double seconds_for(int steps)`.
template <typename Other, typename Own>
AlternatingPairs measure_seconds(const BenchmarkOptions& options, Other& other, Own& own) {
  tell("warming up");
  other.seconds_for(options.warm_up_steps);
  own.seconds_for(options.warm_up_steps);
  return measure_alternating_pairs(
      options.num_pairs, [&] { return other.seconds_for(options.steps); },
      [&] { return own.seconds_for(options.steps); }, &std::cerr);
}

/// Returns such as "2 replicas".
std::string replicas(int count);

/// A job of ours: its title in the report, and its command.
struct OwnJob {
  std::string title;
  Command command;
};

OwnJob workers_job(const BenchmarkOptions& options, const Workload& workload);
OwnJob sharded_workers_job(const BenchmarkOptions& options, const Workload& workload, int stage);

/// Compares a job of ours with another one, called `name`, and adds the row to the report. Throws
/// std::runtime_error if the two do not train equally many parameters, and if their first losses are to be
/// compared and differ.
void compare_own_job(const BenchmarkOptions& options, const OwnJob& own_job, const std::string& name,
                     const Command& other_job, std::optional<Bar> bar, Report& report,
                     bool compares_losses = false);

/// Throws std::runtime_error naming the other program unless the losses of a step are the same but for
/// rounding.
void check_losses(const std::string& name, int step, double other, double own);

/// Returns the workload with the head of torchvision's model.
Workload torch_workload(const BenchmarkOptions& options);
/// Returns the replicas of a comparison with PyTorch, whose ranks do not share a GPU.
int replicas_beside_torch(const BenchmarkOptions& options);
Command torch_command(const BenchmarkOptions& options, TorchPeer peer);

}  // namespace lockstep::benchmarks
