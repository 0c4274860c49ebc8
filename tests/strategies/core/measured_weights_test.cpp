#include "lockstep/strategies/core/internal/measured_weights.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

/// A replica's rank that computes for `fixed` + `each` * examples seconds.
struct SimulatedRank {
  int replica;
  double fixed;
  double each;
};

/// Trains with batches of `n` examples, in simulated time, until the measurement ends. Returns the number of
/// steps.
int train(const std::shared_ptr<BatchShares>& shares, const std::vector<SimulatedRank>& ranks, int64_t n) {
  std::vector<int> replicas;
  for (const auto& rank : ranks) replicas.push_back(rank.replica);
  MeasuredWeights measured(shares, replicas);
  MeasuredWeights::Clock::time_point now;
  const auto after = [&](double seconds) {
    return now + std::chrono::duration_cast<MeasuredWeights::Clock::duration>(
                     std::chrono::duration<double>(seconds));
  };
  double waited = 0;
  int steps = 0;
  while (measured.is_measuring() && steps < 100) {
    const auto bounds = shares->cut(n);
    BatchSizes sizes{n, {}};
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto replica = static_cast<size_t>(ranks[i].replica);
      sizes.local.push_back(bounds[replica + 1] - bounds[replica]);
      const double computed = ranks[i].fixed + ranks[i].each * static_cast<double>(sizes.local[i]);
      // Later replicas wait longer for others, which must not count.
      const double wait = 0.25 * static_cast<double>(i + 1);
      // The first step with new sizes takes longer.
      const double more = steps % 5 == 0 ? 3.0 : 0.0;
      measured.begin(static_cast<int>(i), now, waited);
      measured.note_gradients(static_cast<int>(i), after(computed + wait + more), waited + wait);
    }
    now = after(10);
    waited += 1;
    measured.end_run(sizes);
    ++steps;
  }
  return steps;
}

std::shared_ptr<BatchShares> equal_shares(int replicas) {
  return std::make_shared<BatchShares>(replicas, std::vector<double>());
}

TEST(MeasuredWeights, DivideByTheRatesOfReplicasWhoseTimeIsProportional) {
  const auto shares = equal_shares(3);
  const int steps = train(shares, {{0, 0, 0.01}, {1, 0, 0.02}, {2, 0, 0.04}}, 70);
  EXPECT_EQ(shares->cut(70), (std::vector<int64_t>{0, 40, 60, 70}));
  EXPECT_EQ(steps, 10) << "the second round confirms the first";
}

TEST(MeasuredWeights, ApproachEqualTimesIfSomeWorkDoesNotDependOnTheExamples) {
  const auto shares = equal_shares(2);
  // 0.5 + 0.01 x = 0.5 + 0.03 (120 - x) at x = 90.
  const int steps = train(shares, {{0, 0.5, 0.01}, {1, 0.5, 0.03}}, 120);
  EXPECT_LE(steps, 30);
  EXPECT_NEAR(static_cast<double>(shares->cut(120)[1]), 90, 2);
}

TEST(MeasuredWeights, KeepEqualPiecesForEqualReplicas) {
  const auto shares = equal_shares(2);
  EXPECT_EQ(train(shares, {{0, 0.1, 0.02}, {1, 0.1, 0.02}}, 100), 5);
  EXPECT_TRUE(shares->weights().empty());
}

TEST(MeasuredWeights, AreMediansOfStepsAndMeansOfTheLastTwoRounds) {
  const auto shares = equal_shares(2);
  MeasuredWeights measured(shares, {0, 1});
  const MeasuredWeights::Clock::time_point begin;
  for (int run = 0; run < 20; ++run) {
    const int64_t first = shares->cut(1200)[1];
    // The second replica is twice and three times as fast in turn, so no round confirms the last one's
    // weights. One step of each round is disturbed.
    const double rate = run / 5 % 2 == 0 ? 2 : 3;
    const double second = static_cast<double>(1200 - first) / rate + (run % 5 == 3 ? 5000 : 0);
    measured.begin(0, begin, 0);
    measured.note_gradients(0, begin + std::chrono::milliseconds(first), 0);
    measured.begin(1, begin, 0);
    measured.note_gradients(1, begin + std::chrono::microseconds(std::llround(1e3 * second)), 0);
    measured.end_run(BatchSizes{1200, {first, 1200 - first}});
    const double expected = run < 4 ? 600 : run < 9 ? 400 : run < 14 ? 300 : run < 19 ? 400 : 350;
    ASSERT_NEAR(static_cast<double>(shares->cut(1200)[1]), expected, 1) << "run " << run;
  }
  EXPECT_FALSE(measured.is_measuring());
}

TEST(MeasuredWeights, TakeTheSlowestRankOfAReplica) {
  const auto shares = equal_shares(2);
  train(shares, {{0, 0, 0.01}, {0, 0, 0.03}, {1, 0, 0.01}, {1, 0, 0.01}}, 80);
  EXPECT_EQ(shares->cut(80)[1], 20) << "0.03 x = 0.01 (80 - x) at x = 20";
}

/// Makes a training step whose two ranks take 1 s and 2 s for a batch that was cut so.
void step(MeasuredWeights& measured, const std::optional<BatchSizes>& sizes) {
  const MeasuredWeights::Clock::time_point begin;
  for (int rank = 0; rank < 2; ++rank) {
    measured.begin(rank, begin, 0);
    measured.note_gradients(rank, begin + std::chrono::seconds(1 + rank), 0);
    // A second optimizer's gradients follow sums with others.
    measured.note_gradients(rank, begin + std::chrono::seconds(7), 0);
  }
  measured.end_run(sizes);
}

TEST(MeasuredWeights, IgnoreRunsWithoutGradientsAndBatchesCutOtherwise) {
  const auto shares = equal_shares(2);
  MeasuredWeights measured(shares, {0, 1});
  for (int run = 0; run < 200; ++run) {
    for (int rank = 0; rank < 2; ++rank) measured.begin(rank, {}, 0);
    measured.end_run(BatchSizes{8, {4, 4}});  // an evaluation
  }
  EXPECT_TRUE(measured.is_measuring());
  for (int run = 0; run < 20; ++run) step(measured, BatchSizes{8, {2, 6}});
  for (int run = 0; run < 20; ++run) step(measured, std::nullopt);
  EXPECT_TRUE(measured.is_measuring());
  EXPECT_TRUE(shares->weights().empty());
  for (int run = 0; run < 20; ++run) step(measured, BatchSizes{1, {1, 0}});
  EXPECT_FALSE(measured.is_measuring()) << "60 steps without a time that counts are enough";
  EXPECT_TRUE(shares->weights().empty());
}

TEST(MeasuredWeights, UndoWeightsThatNoBatchIsCutBy) {
  const auto shares = equal_shares(2);
  MeasuredWeights measured(shares, {0, 1});
  // As distribute_datasets_from_function() gives them, whatever the weights are.
  for (int run = 0; run < 60 && measured.is_measuring(); ++run) {
    step(measured, BatchSizes{8, {4, 4}});
    if (run == 5) {
      EXPECT_EQ(shares->cut(9), (std::vector<int64_t>{0, 6, 9}));
    }
  }
  EXPECT_FALSE(measured.is_measuring());
  EXPECT_TRUE(shares->weights().empty());
}

}  // namespace
}  // namespace lockstep
