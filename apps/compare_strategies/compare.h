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
  std::string program;                 ///< this one's path
  std::vector<std::string> arguments;  ///< its own
  std::string version;                 ///< of Lockstep
  std::function<bool()> is_cancelled = [] { return false; };
  /// What a strategy did in a round, if that has been measured before; null: nothing has.
  std::function<std::optional<TrialResult>(int64_t round, int strategy)> find_result{};
  /// Gets what is measured, at once; null: nobody does.
  std::function<void(int64_t round, int strategy, const TrialResult&)> on_result{};
};

/// Measures every strategy in every round, each in processes of its own, and blocks until all have ended. A
/// line a measurement goes to `progress`. Throws TrialCancelled, and std::system_error where no process can
/// be started; a strategy that fails has a row that says so.
ComparisonReport compare(const CompareRequest& request, std::ostream& progress);

/// 0, or the exit code of the first strategy that failed.
int exit_code_of(const ComparisonReport& report);

}  // namespace lockstep::apps
