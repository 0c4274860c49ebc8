#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/report/comparison_report.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"

namespace lockstep::apps {

struct CompareRequest {
  CompareOptions options;
  std::string program;                 ///< path of this program
  std::vector<std::string> arguments;  ///< arguments of this program
  std::string version;                 ///< version of Lockstep
  std::function<bool()> is_cancelled = [] { return false; };
  /// Returns the result of a strategy in a round if it has been measured before. Null: nothing has been.
  std::function<std::optional<TrialResult>(int64_t round, int strategy)> find_result{};
  /// Called with each new measurement as soon as it is made. Null: not called.
  std::function<void(int64_t round, int strategy, const TrialResult&)> on_result{};
};

/// Measures every strategy in every round, each in its own processes, and blocks until all have ended. Writes
/// one line per measurement to `progress`. A strategy that fails gets a row that says so. Throws
/// TrialCancelled if the request is cancelled, and std::system_error if a process cannot be started.
ComparisonReport compare(const CompareRequest& request, std::ostream& progress);

/// Returns 0, or the exit code of the first strategy that failed.
int exit_code_of(const ComparisonReport& report);

}  // namespace lockstep::apps
