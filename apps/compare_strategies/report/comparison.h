#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"
#include "lockstep/measurement/statistics.h"

namespace lockstep::apps {

/// A figure over the rounds.
struct Spread {
  double median = 0;
  /// Holds the median with a confidence of 95 %; none for fewer rounds than that takes.
  std::optional<measurement::MedianInterval> interval;
  std::vector<double> rounds;
};

/// Of one value or more, which the statistics refuse.
Spread spread_of(std::vector<double> rounds);

/// What came of one strategy.
struct ComparisonRow {
  ComparedStrategy strategy;
  std::optional<TrialFailure> failure;  ///< where it failed, in any round; then nothing below holds
  int64_t replicas = 0;
  std::string description;
  Spread examples_per_second;
  std::optional<Spread> ratio;  ///< of that, round by round, to the reference's
  /// The largest of the final parameters to the reference's, in the first round, as the loss.
  double parameter_difference = 0;
  double loss = 0;                ///< of the last step
  std::vector<double> losses;     ///< of every step
  int64_t peak_memory_bytes = 0;  ///< the largest of all rounds
  double data_wait_share = 0;     ///< medians over the rounds, as the next
  double communication_share = 0;
};

/// Collects what the rounds measured.
class Comparison {
 public:
  explicit Comparison(const std::vector<ComparedStrategy>& strategies);

  /// What the strategy did in the next round. In the first one it has parameters.
  void add(int strategy, TrialResult result);
  /// The strategy takes part in no further round.
  void add_failure(int strategy, TrialFailure failure);
  bool has_failed(int strategy) const;

  /// The first strategy that did not fail; -1: none.
  int reference() const;
  /// In the order of the strategies.
  std::vector<ComparisonRow> rows() const;
  /// The first one's that ended well; null: none did.
  const MeasuredRun* any_run() const;

 private:
  struct Record {
    ComparedStrategy strategy;
    std::optional<TrialFailure> failure;
    std::vector<MeasuredRun> runs;  // of each round
    std::vector<double> parameters;
  };

  std::vector<Record> records_;
};

/// Round by round, how many times as many examples a second the one trained as the other.
std::vector<double> speed_ratios(const ComparisonRow& row, const ComparisonRow& other);

/// A sentence that says which strategy to use here, and why: the simplest (fewest processes, then replicas,
/// then the one named first) of those that none is clearly faster than, which takes an interval of their
/// ratios that lies above 1. `examples` are images, rows.
std::string advice(const std::vector<ComparisonRow>& rows, const std::string& examples);

/// The strategy that it names; -1: none.
int advised_strategy(const std::vector<ComparisonRow>& rows);

}  // namespace lockstep::apps
