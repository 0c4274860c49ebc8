#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::apps {

/// Fewest rounds that give a 95 % confidence interval of a median: measurement::median_with_interval() needs
/// as many values.
inline constexpr size_t kFewestRoundsForAnInterval = 6;

/// Statistics of one quantity over the rounds.
struct Spread {
  double median = 0;
  /// 95 % confidence interval of the median; none if there are too few rounds.
  std::optional<measurement::MedianInterval> interval;
  std::vector<double> rounds;
};

/// Computes the spread of `rounds`. The statistics throw if it is empty.
Spread spread_of(std::vector<double> rounds);

/// Results of one strategy.
struct ComparisonRow {
  ComparedStrategy strategy;
  /// Set if the strategy failed in any round; the fields below are then unset.
  std::optional<TrialFailure> failure;
  int64_t replicas = 0;
  std::string description;
  Spread examples_per_second;
  std::optional<Spread> ratio;  ///< ratio of examples_per_second to the reference's, round by round
  /// Largest difference between the final parameters and the reference's. Like the loss, from the first
  /// round.
  double parameter_difference = 0;
  double loss = 0;                ///< loss of the last step
  std::vector<double> losses;     ///< loss of every step
  int64_t peak_memory_bytes = 0;  ///< maximum over all rounds
  double data_wait_share = 0;     ///< median over the rounds, like the next field
  double communication_share = 0;
  std::vector<RankMemory> ranks;  ///< from the first round; empty if they were not measured
};

/// Collects the measurements of the rounds.
class Comparison {
 public:
  explicit Comparison(const std::vector<ComparedStrategy>& strategies);

  /// Adds the result of a strategy's next round. In the first round it must contain parameters.
  void add(int strategy, TrialResult result);
  /// Marks a strategy as failed; it takes part in no further round.
  void add_failure(int strategy, TrialFailure failure);
  bool has_failed(int strategy) const;

  /// Returns the index of the first strategy that did not fail, or -1 if there is none.
  int reference() const;
  /// Returns one row per strategy, in the order of the strategies.
  std::vector<ComparisonRow> rows() const;
  /// Returns the first successful run, or null if there is none.
  const MeasuredRun* any_run() const;

 private:
  struct Record {
    ComparedStrategy strategy;
    std::optional<TrialFailure> failure;
    std::vector<MeasuredRun> runs;  // one per round
    std::vector<double> parameters;
  };

  std::vector<Record> records_;
};

/// Returns, for each round, the speed of `row` divided by the speed of `other`.
std::vector<double> speed_ratios(const ComparisonRow& row, const ComparisonRow& other);

/// Returns a sentence that recommends a strategy and says why: the simplest one that no other clearly beats.
/// Simplest means fewest processes, then fewest replicas, then named first. Another strategy is clearly
/// faster if the interval of the speed ratios is above 1. With fewer than kFewestRoundsForAnInterval rounds
/// of several strategies the sentence recommends none, and asks for more rounds. `examples` is "images",
/// "rows" or "tokens".
std::string advice(const std::vector<ComparisonRow>& rows, const std::string& examples);

/// Returns the index of the strategy that advice() recommends, or -1 if it recommends none.
int advised_strategy(const std::vector<ComparisonRow>& rows);

}  // namespace lockstep::apps
