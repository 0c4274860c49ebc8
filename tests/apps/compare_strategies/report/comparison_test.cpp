#include "lockstep/apps/compare_strategies/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace lockstep::apps {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const ComparedStrategy kDefault{"default", 0, "default"};
const ComparedStrategy kMirrored{"mirrored", 2, "mirrored:2"};
const ComparedStrategy kOneDevice{"one_device", 0, "one_device"};
const ComparedStrategy kWorkers{"multi_worker", 2, "multi_worker:2"};

MeasuredRun run_at(double examples_per_second, int64_t replicas = 1) {
  return {
      .replicas = replicas, .examples = 1000, .seconds = 1000 / examples_per_second, .losses = {2.0, 1.0}};
}

/// Adds a strategy's runs, one per round, each with a speed in images per second.
void add_runs(Comparison& comparison, int strategy, const std::vector<double>& speeds, int64_t replicas = 1) {
  for (const double speed : speeds)
    comparison.add(strategy, {.run = run_at(speed, replicas), .parameters = {0.0}});
}

TEST(Comparison, ComparesRoundByRound) {
  Comparison comparison({kDefault, kMirrored});
  // The machine is half as fast in every other round, but the ratios stay the same.
  add_runs(comparison, 0, {100, 50, 100, 50, 100, 50});
  add_runs(comparison, 1, {150, 75, 150, 75, 150, 75}, 2);
  const auto rows = comparison.rows();
  EXPECT_EQ(comparison.reference(), 0);
  EXPECT_DOUBLE_EQ(rows[0].examples_per_second.median, 75);
  EXPECT_DOUBLE_EQ(rows[1].examples_per_second.median, 112.5);
  ASSERT_TRUE(rows[1].ratio && rows[1].ratio->interval);
  EXPECT_NEAR(rows[1].ratio->median, 1.5, 1e-12);
  EXPECT_NEAR(rows[1].ratio->interval->lower, 1.5, 1e-12);
  EXPECT_NEAR(rows[1].ratio->interval->upper, 1.5, 1e-12);
  EXPECT_NEAR(rows[0].ratio->median, 1, 1e-12);
  EXPECT_EQ(rows[1].replicas, 2);
}

TEST(Comparison, HasNoIntervalOfFewerThanSixRounds) {
  EXPECT_FALSE(spread_of({1, 2, 3, 4, 5}).interval);
  const auto spread = spread_of({6, 2, 3, 4, 5, 1});
  // For six values, [smallest, largest] misses the median with probability 2 / 64.
  ASSERT_TRUE(spread.interval);
  EXPECT_EQ(spread.interval->lower, 1);
  EXPECT_EQ(spread.interval->upper, 6);
  EXPECT_EQ(spread.median, 3.5);
  EXPECT_THAT(spread.rounds, ElementsAre(6, 2, 3, 4, 5, 1));
}

TEST(Comparison, TakesLossesAndParametersOfTheFirstRound) {
  Comparison comparison({kDefault, kMirrored});
  auto run = run_at(100);
  run.losses = {3, 2, 0.5};
  comparison.add(0, {.run = run, .parameters = {1.0, 2.0, 3.0}});
  run.losses = {3, 2, 0.25};
  comparison.add(1, {.run = run, .parameters = {1.0, 2.5, 2.75}});
  run.losses = {9, 9, 9};
  comparison.add(1, {.run = run, .parameters = {}});
  const auto rows = comparison.rows();
  EXPECT_EQ(rows[0].loss, 0.5);
  EXPECT_EQ(rows[1].loss, 0.25);
  EXPECT_THAT(rows[1].losses, ElementsAre(3, 2, 0.25));
  EXPECT_EQ(rows[0].parameter_difference, 0);
  EXPECT_EQ(rows[1].parameter_difference, 0.5);
}

TEST(Comparison, TakesTheMostMemoryAndTheMedianShares) {
  Comparison comparison({kDefault});
  for (const int round : {1, 2, 6}) {
    auto run = run_at(100);  // takes 10 s
    run.peak_memory_bytes = 100 * round;
    run.data_wait_seconds = round;
    run.communication_seconds = 0.5 * round;
    comparison.add(0, {.run = run, .parameters = {}});
  }
  const auto row = comparison.rows()[0];
  EXPECT_EQ(row.peak_memory_bytes, 600);
  EXPECT_DOUBLE_EQ(row.data_wait_share, 0.2);
  EXPECT_DOUBLE_EQ(row.communication_share, 0.1);
}

TEST(Comparison, ComparesWithTheFirstThatDidNotFail) {
  Comparison comparison({kDefault, kMirrored, kOneDevice});
  comparison.add_failure(0, {2, "no such device"});
  add_runs(comparison, 1, {100}, 2);
  add_runs(comparison, 2, {50});
  EXPECT_TRUE(comparison.has_failed(0));
  EXPECT_FALSE(comparison.has_failed(1));
  EXPECT_EQ(comparison.reference(), 1);
  const auto rows = comparison.rows();
  ASSERT_TRUE(rows[0].failure);
  EXPECT_EQ(rows[0].failure->exit_code, 2);
  EXPECT_FALSE(rows[0].ratio);
  EXPECT_DOUBLE_EQ(rows[2].ratio->median, 0.5);
}

TEST(Comparison, OfNothingButFailuresHasNoReference) {
  Comparison comparison({kDefault});
  comparison.add_failure(0, {7, "out of memory"});
  EXPECT_EQ(comparison.reference(), -1);
  EXPECT_EQ(comparison.any_run(), nullptr);
  EXPECT_EQ(advised_strategy(comparison.rows()), -1);
  EXPECT_EQ(advice(comparison.rows(), "images"), "No strategy trained to the end, so none can be advised.");
}

/// A strategy, its number of replicas, and its speed in each round.
struct Speeds {
  ComparedStrategy strategy;
  int64_t replicas;
  std::vector<double> rounds;
};

std::vector<ComparisonRow> rows_of(const std::vector<Speeds>& all) {
  std::vector<ComparedStrategy> strategies;
  for (const auto& one : all) strategies.push_back(one.strategy);
  Comparison comparison(strategies);
  for (size_t i = 0; i < all.size(); ++i)
    add_runs(comparison, static_cast<int>(i), all[i].rounds, all[i].replicas);
  return comparison.rows();
}

TEST(Advice, NamesTheSimplestWhereNoneIsClearlyFaster) {
  const auto rows =
      rows_of({{kMirrored, 2, {101, 99, 103, 98, 102, 104}}, {kDefault, 1, {100, 100, 100, 100, 100, 100}}});
  EXPECT_EQ(advised_strategy(rows), 1);
  EXPECT_EQ(advice(rows, "images"),
            "Use default here: it is the simplest, and none is clearly faster: mirrored:2 trained 1.01 times "
            "as many "
            "images a second as default (95 % interval 0.98 to 1.04).");
}

TEST(Advice, NamesTheOneThatIsClearlyFaster) {
  const auto rows = rows_of(
      {{kDefault, 1, {100, 100, 100, 100, 100, 100}}, {kMirrored, 2, {160, 150, 155, 158, 149, 170}}});
  EXPECT_EQ(advised_strategy(rows), 1);
  EXPECT_EQ(advice(rows, "images"),
            "Use mirrored:2 here: it trained 1.56 times as many images a second as default (95 % interval "
            "1.49 to 1.70), "
            "the simplest, and none was faster in most rounds.");
}

TEST(Advice, DoesNotNameAMoreComplexOneThatIsNotClearlyFasterThanASimplerOneThatIs) {
  const auto rows = rows_of({{kWorkers, 2, {161, 149, 157, 157, 150, 171}},
                             {kMirrored, 2, {160, 150, 155, 158, 149, 170}},
                             {kDefault, 1, {100, 100, 100, 100, 100, 100}}});
  EXPECT_EQ(advised_strategy(rows), 1);
  EXPECT_THAT(advice(rows, "images"), StartsWith("Use mirrored:2 here: it trained 1.56 times"));
  EXPECT_THAT(advice(rows, "images"), HasSubstr("and none is clearly faster: multi_worker:2 trained 1.0"));
}

TEST(Advice, SaysThatTheSimplestIsTheFastest) {
  const auto rows =
      rows_of({{kDefault, 1, {100, 100, 100, 100, 100, 100}}, {kMirrored, 2, {60, 50, 55, 58, 49, 70}}});
  EXPECT_EQ(advice(rows, "images"),
            "Use default here: it is the simplest, and none was faster in most rounds.");
}

TEST(Advice, TakesTheOneNamedFirstOfEquallySimpleOnes) {
  const std::vector<double> same{100, 100, 100, 100, 100, 100};
  EXPECT_EQ(advised_strategy(rows_of({{kOneDevice, 1, same}, {kDefault, 1, same}})), 0);
}

TEST(Advice, RecommendsNoStrategyAfterTooFewRounds) {
  const auto rows = rows_of({{kDefault, 1, {100, 100}}, {kMirrored, 2, {196, 192}}});
  EXPECT_EQ(advised_strategy(rows), -1);
  EXPECT_EQ(advice(rows, "images"),
            "Too few rounds for advice: in 2 rounds mirrored:2 trained 1.94 times as many images a second as "
            "default, but that may be noise. --rounds 6 or more show it.");
}

TEST(Advice, RecommendsNotEvenTheSimplestAfterTooFewRounds) {
  const auto rows = rows_of({{kMirrored, 2, {80}}, {kDefault, 1, {100}}});
  EXPECT_EQ(advised_strategy(rows), -1);
  EXPECT_EQ(advice(rows, "rows"),
            "Too few rounds for advice: in 1 round none trained faster than default, the simplest, but that "
            "may be noise. --rounds 6 or more show it.");
}

TEST(Advice, BeginsWithTheRoundThatGivesAnInterval) {
  const auto rows_after = [](size_t rounds) {
    return rows_of(
        {{kDefault, 1, std::vector<double>(rounds, 100)}, {kMirrored, 2, std::vector<double>(rounds, 194)}});
  };
  EXPECT_EQ(advised_strategy(rows_after(kFewestRoundsForAnInterval - 1)), -1);
  EXPECT_EQ(advised_strategy(rows_after(kFewestRoundsForAnInterval)), 1);
}

TEST(Advice, NamesTheOnlyStrategyThatTrainedAfterAnyNumberOfRounds) {
  Comparison comparison({kDefault, kMirrored});
  add_runs(comparison, 0, {100});
  comparison.add_failure(1, {7, "out of memory"});
  EXPECT_EQ(advised_strategy(comparison.rows()), 0);
  EXPECT_EQ(advice(comparison.rows(), "images"), "Use default here: no other strategy trained to the end.");
}

TEST(Advice, LeavesOutStrategiesWhoseLossIsNoNumber) {
  Comparison comparison({kDefault, kMirrored});
  add_runs(comparison, 0, {100, 100, 100, 100, 100, 100});
  for (int round = 0; round < 6; ++round) {
    auto run = run_at(500, 2);
    run.losses = {1, std::numeric_limits<double>::quiet_NaN()};
    comparison.add(1, {.run = run, .parameters = {std::nan("")}});
  }
  const auto rows = comparison.rows();
  EXPECT_TRUE(std::isnan(rows[1].parameter_difference));
  EXPECT_EQ(advised_strategy(rows), 0);
  EXPECT_EQ(advice(rows, "images"), "Use default here: no other strategy trained to the end.");
}

}  // namespace
}  // namespace lockstep::apps
