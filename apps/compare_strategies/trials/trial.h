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
  int exit_code = 1;    ///< of its process, 124 where it took too long
  std::string message;  ///< one line
};

/// A signal stopped the comparison while a strategy ran.
struct TrialCancelled {};

/// Starts this program again to measure one strategy.
struct TrialSetup {
  std::string program;                 ///< its path
  std::vector<std::string> arguments;  ///< that this process was started with
  std::string folder;                  ///< for the files between the processes
  std::chrono::seconds timeout{3600};
  std::function<bool()> is_cancelled = [] { return false; };
};

struct TrialResult {
  MeasuredRun run;                 ///< of all its processes together
  std::vector<double> parameters;  ///< at the end, where they were asked for
};

/// What to measure.
struct Trial {
  ComparedStrategy strategy;
  int index = 0;  ///< of the strategy among those of the arguments
  bool wants_parameters = false;
};

/// Trains by the strategy once, in processes of its own, and blocks until they have ended. Throws
/// TrialFailure where it fails, TrialCancelled, and std::system_error where no process can be started.
TrialResult run_trial(const TrialSetup& setup, const Trial& trial);

}  // namespace lockstep::apps
