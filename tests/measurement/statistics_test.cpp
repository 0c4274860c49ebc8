#include "lockstep/measurement/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::measurement {
namespace {

TEST(Median, IsTheMiddleValueOrTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Median, RefusesAnEmptySample) {
  EXPECT_THROW(median({}), std::invalid_argument);
}

// The oracle is the sign test's published critical values (Conover, Practical Nonparametric Statistics): one
// more than the largest k with P(B <= k) <= 0.025.
TEST(MedianInterval, HasTheRanksOfTheSignTestsTable) {
  const std::vector<std::pair<int, int>> table = {{6, 1},  {8, 1},  {9, 2},  {10, 2},  {12, 3}, {15, 4},
                                                  {20, 6}, {21, 6}, {25, 8}, {30, 10}, {50, 18}};
  for (const auto& [count, rank] : table) EXPECT_EQ(median_interval_rank(count, 0.95), rank) << count;
}

// By hand, for 15 values: P(B <= 3) = (1 + 15 + 105 + 455) / 32768, so ranks 4 and 12 cover 1 - 2 * 576 /
// 32768.
TEST(MedianInterval, TakesTheLargestRankWhoseCoverageIsEnough) {
  const double coverage = 1 - 2 * 576.0 / 32768;
  EXPECT_EQ(median_interval_rank(15, coverage - 1e-9), 4);
  EXPECT_EQ(median_interval_rank(15, coverage + 1e-9), 3);
}

TEST(MedianInterval, RefusesSamplesTooSmallForIt) {
  EXPECT_THROW(median_interval_rank(5, 0.95), std::invalid_argument);
  EXPECT_THROW(median_with_interval({1, 2, 3, 4, 5}), std::invalid_argument);
}

TEST(MedianInterval, LiesAtTheRanksOfTheSortedSample) {
  std::vector<double> values(15);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((i * 7) % 15 + 1);
  const auto interval = median_with_interval(values);
  EXPECT_EQ(interval.median, 8);
  EXPECT_EQ(interval.lower, 4);
  EXPECT_EQ(interval.upper, 12);
}

TEST(MedianInterval, HoldsTheMedianOfASkewedDistributionInNinetyFivePercentOfSamples) {
  std::mt19937 random(1);
  std::exponential_distribution<double> distribution(1);
  const double true_median = std::log(2);
  constexpr int kSamples = 4000;
  int held = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> values(21);
    std::generate(values.begin(), values.end(), [&] { return distribution(random); });
    const auto interval = median_with_interval(values);
    held += interval.lower <= true_median && true_median <= interval.upper;
  }
  // 21 values cover 97.3 %; four standard deviations of the count are 1 %.
  EXPECT_NEAR(static_cast<double>(held) / kSamples, 0.973, 0.010);
}

}  // namespace
}  // namespace lockstep::measurement
