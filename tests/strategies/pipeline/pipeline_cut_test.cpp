#include "lockstep/strategies/pipeline/internal/pipeline_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using Firsts = std::vector<size_t>;

double largest_stage(const std::vector<double>& costs, const Firsts& firsts) {
  double largest = 0;
  for (size_t stage = 0; stage < firsts.size(); ++stage) {
    const size_t end = stage + 1 < firsts.size() ? firsts[stage + 1] : costs.size();
    largest = std::max(largest, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(firsts[stage]),
                                                costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0));
  }
  return largest;
}

/// The least largest cost of all ways to cut.
double least(const std::vector<double>& costs, size_t stages, Firsts firsts = {0}) {
  if (firsts.size() == stages) return largest_stage(costs, firsts);
  double best = std::numeric_limits<double>::infinity();
  for (size_t next = firsts.back() + 1; next < costs.size(); ++next) {
    auto more = firsts;
    more.push_back(next);
    best = std::min(best, least(costs, stages, more));
  }
  return best;
}

TEST(PipelineCutTest, TheLargestStageIsTheSmallestOfAllWaysToCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> costs(1 + random() % 9);
    for (auto& cost : costs) cost = static_cast<double>(random() % 20);
    const size_t stages = 1 + random() % costs.size();
    const auto firsts = cut_into_stages(costs, stages);
    ASSERT_EQ(firsts.size(), stages);
    ASSERT_EQ(firsts[0], 0U);
    ASSERT_TRUE(std::is_sorted(firsts.begin(), firsts.end(), std::less_equal<>()));
    ASSERT_LT(firsts.back(), costs.size());
    EXPECT_EQ(largest_stage(costs, firsts), least(costs, stages));
  }
}

TEST(PipelineCutTest, CutsByHandAreChecked) {
  EXPECT_EQ(stages_cut_at({2, 3}, 5, 3), (Firsts{0, 2, 3}));
  EXPECT_EQ(message_of<InvalidArgument>([] { stages_cut_at({2}, 5, 3); }),
            "[Pipeline] expected the first blocks of 2 stages after the first, but got 1");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              stages_cut_at({3, 3}, 5, 3);
            }),
            "[Pipeline] expected the first block of a stage to be from 4 to 4, but got 3");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              stages_cut_at({1, 5}, 5, 3);
            }),
            "[Pipeline] expected the first block of a stage to be from 2 to 4, but got 5");
}

TEST(PipelineCutTest, MoreStagesThanBlocksAreRefused) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              cut_into_stages({1, 2}, 3);
            }),
            "[Pipeline] expected at least one block for each of 3 stages, but got 2 blocks");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              cut_into_stages({1, -2}, 1);
            }),
            "[Pipeline] expected costs of 0 or more, but got -2.000000 of block 1");
}

}  // namespace
}  // namespace lockstep
