#include "lockstep/apps/compare_strategies/compare.h"

#include <fmt/format.h>

#include <chrono>
#include <ostream>
#include <utility>

#include "lockstep/apps/compare_strategies/report/result_folder.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {
namespace {

/// Returns the strategies of a round. Every other round reverses their order, so that no strategy always
/// follows the same other one.
std::vector<int> order_of_round(int64_t round, size_t num_strategies) {
  std::vector<int> order;
  for (size_t i = 0; i < num_strategies; ++i)
    order.push_back(static_cast<int>(round % 2 == 0 ? i : num_strategies - 1 - i));
  return order;
}

}  // namespace

ComparisonReport compare(const CompareRequest& request, std::ostream& progress) {
  const CompareOptions& options = request.options;
  const WorkFolder folder;
  const TrialSetup setup{.program = request.program,
                         .arguments = request.arguments,
                         .folder = folder.path(),
                         .timeout = std::chrono::seconds(options.timeout_seconds),
                         .is_cancelled = request.is_cancelled};
  Comparison comparison(options.strategies);
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (const int index : order_of_round(round, options.strategies.size())) {
      if (comparison.has_failed(index)) continue;
      if (request.find_result) {
        if (auto result = request.find_result(round, index)) {
          comparison.add(index, std::move(*result));
          continue;
        }
      }
      const ComparedStrategy& strategy = options.strategies[static_cast<size_t>(index)];
      const std::string label = fmt::format("round {}/{}  {}", round + 1, options.rounds, strategy.label);
      try {
        auto result =
            run_trial(setup, {.strategy = strategy, .index = index, .wants_parameters = round == 0});
        if (!options.quiet)
          progress << fmt::format("{}  {:.0f} {}/s", label, result.run.examples_per_second(),
                                  examples_of(options.work))
                   << std::endl;
        if (request.on_result) request.on_result(round, index, result);
        comparison.add(index, std::move(result));
      } catch (const TrialFailure& failure) {
        if (!options.quiet)
          progress << printable_lines(
                          fmt::format("{}  exit code {}: {}", label, failure.exit_code, failure.message))
                   << std::endl;
        comparison.add_failure(index, failure);
      }
    }
  }
  const MeasuredRun* run = comparison.any_run();
  return {.options = options,
          .rows = comparison.rows(),
          .reference = comparison.reference(),
          .data = run == nullptr ? "" : run->data,
          .parameters = run == nullptr ? 0 : run->parameters,
          .machine = measurement::describe_machine(),
          .date = measurement::today(),
          .version = request.version};
}

int exit_code_of(const ComparisonReport& report) {
  for (const auto& row : report.rows) {
    if (row.failure) return row.failure->exit_code == 0 ? 1 : row.failure->exit_code;
  }
  return 0;
}

}  // namespace lockstep::apps
