#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_run.h"

namespace lockstep::apps {

/// How a strategy failed.
struct TrialFailure {
  int exit_code = 1;    ///< exit code of the process; 124 if it timed out
  std::string message;  ///< one line
};

/// Thrown if a signal stops the comparison while a strategy runs.
struct TrialCancelled {};

/// How to start this program again to measure one strategy.
struct TrialSetup {
  std::string program;                 ///< path of the program
  std::vector<std::string> arguments;  ///< arguments that this process was started with
  std::string folder;                  ///< folder for the files that the processes exchange
  std::chrono::seconds timeout{3600};
  std::function<bool()> is_cancelled = [] { return false; };
};

struct TrialResult {
  MeasuredRun run;                 ///< merged over all processes
  std::vector<double> parameters;  ///< final values, if they were requested
};

/// One measurement to make.
struct Trial {
  ComparedStrategy strategy;
  int index = 0;  ///< index of the strategy among the arguments
  bool wants_parameters = false;
};

/// Trains with the strategy once, in new processes, and blocks until they have ended. Throws TrialFailure if
/// the training fails, TrialCancelled if it is cancelled, and std::system_error if a process cannot be
/// started.
TrialResult run_trial(const TrialSetup& setup, const Trial& trial);

}  // namespace lockstep::apps
