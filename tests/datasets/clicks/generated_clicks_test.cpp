#include "lockstep/datasets/clicks/generated_clicks.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

TEST(GeneratedClicks, ARowDependsOnTheSeedAndItsIndexAlone) {
  const GeneratedClicks clicks({.count = 10, .seed = 3});
  const GeneratedClicks same({.count = 1'000'000, .seed = 3});
  const GeneratedClicks other({.count = 10, .seed = 4});
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(clicks.row(i), same.row(i));
    EXPECT_NE(clicks.row(i), other.row(i));
    EXPECT_NE(clicks.row(i), clicks.row(i + 1));
  }
  EXPECT_EQ(clicks.size(), 10U);
  EXPECT_THROW(GeneratedClicks({.count = -1}), std::invalid_argument);
}

TEST(GeneratedClicks, TheBatchHasItsRows) {
  const GeneratedClicks clicks;
  const auto batch = clicks.get_batch({5, 3});
  const auto& [numbers, ids] = batch.data;
  EXPECT_EQ(numbers.sizes(), (std::vector<int64_t>{2, 13}));
  EXPECT_EQ(ids.sizes(), (std::vector<int64_t>{2, 26}));
  const auto row = clicks.row(3);
  EXPECT_EQ(batch.target[1].item<float>(), row.is_click ? 1 : 0);
  for (int64_t i = 0; i < 13; ++i)
    EXPECT_EQ(numbers[1][i].item<float>(), click_feature(row.numbers[static_cast<size_t>(i)]));
  for (int i = 0; i < 26; ++i)
    EXPECT_EQ(ids[1][i].item<int64_t>(), click_id(i, row.categories[static_cast<size_t>(i)]));
}

TEST(GeneratedClicks, ClicksComeWithTheirProbability) {
  const GeneratedClicks clicks;
  // The number of clicks in each of ten probability bins is as expected, within 5 standard deviations.
  std::map<int, double> expected;
  std::map<int, double> variance;
  std::map<int, double> clicked;
  for (size_t i = 0; i < 50'000; ++i) {
    const double p = clicks.probability(i);
    const int bin = static_cast<int>(p * 10);
    expected[bin] += p;
    variance[bin] += p * (1 - p);
    clicked[bin] += clicks.row(i).is_click ? 1 : 0;
  }
  EXPECT_GE(expected.size(), 8U);
  for (const auto& [bin, count] : expected)
    EXPECT_NEAR(clicked[bin], count, 5 * std::sqrt(variance[bin]) + 1)
        << "probabilities from " << bin << "0 %";
}

TEST(GeneratedClicks, FewCategoriesOfAColumnAreFrequent) {
  const GeneratedClicks clicks;
  std::map<uint32_t, int> counts;
  int missing = 0;
  for (size_t i = 0; i < 20'000; ++i) {
    const auto category = clicks.row(i).categories[25];
    category ? ++counts[*category] : ++missing;
  }
  int most = 0;
  for (const auto& [category, count] : counts) most = std::max(most, count);
  // The first of 2,000 categories has a share of log(2) / log(2001) of the rows that have a category.
  EXPECT_NEAR(most, 0.95 * 20'000 * std::log(2) / std::log(2001), 200);
  EXPECT_NEAR(missing, 0.05 * 20'000, 150);
  EXPECT_GT(counts.size(), 1500U);
  EXPECT_LE(counts.size(), 2000U);
}

}  // namespace
}  // namespace lockstep
