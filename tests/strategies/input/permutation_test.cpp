#include "lockstep/strategies/input/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace lockstep {
namespace {

TEST(EpochPermutation, HoldsEveryIndexOnce) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    auto order = epoch_permutation(size, 5, 2);
    std::sort(order.begin(), order.end());
    std::vector<size_t> expected(size);
    std::iota(expected.begin(), expected.end(), size_t{0});
    EXPECT_EQ(order, expected) << size;
  }
}

// Computed by the same algorithm in Python, whose integers have no fixed width.
TEST(EpochPermutation, IsTheSameOnEveryMachine) {
  EXPECT_EQ(epoch_permutation(10, 1, 0), (std::vector<size_t>{6, 4, 7, 2, 9, 1, 5, 0, 8, 3}));
  EXPECT_EQ(epoch_permutation(10, 1, 1), (std::vector<size_t>{7, 6, 9, 3, 4, 0, 1, 8, 2, 5}));
  EXPECT_EQ(epoch_permutation(10, 18446744073709551615ULL, 3),
            (std::vector<size_t>{7, 5, 2, 8, 4, 6, 3, 9, 1, 0}));
}

TEST(EpochPermutation, DiffersBetweenEpochsAndSeeds) {
  std::set<std::vector<size_t>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t epoch = 0; epoch < 10; ++epoch) orders.insert(epoch_permutation(50, seed, epoch));
  }
  EXPECT_EQ(orders.size(), 100U);
}

// Pearson's statistic over the 24 orders of 4 elements: 23 degrees of freedom, 99.9 % of uniform draws stay
// below 49.7.
TEST(EpochPermutation, DrawsEveryOrderEquallyOften) {
  constexpr int kDraws = 24000;
  std::map<std::vector<size_t>, int> counts;
  for (int64_t epoch = 0; epoch < kDraws; ++epoch) ++counts[epoch_permutation(4, 9, epoch)];
  ASSERT_EQ(counts.size(), 24U);
  double statistic = 0;
  for (const auto& [order, count] : counts) statistic += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(statistic, 49.7);
}

}  // namespace
}  // namespace lockstep
