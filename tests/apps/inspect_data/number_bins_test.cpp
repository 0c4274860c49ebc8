#include "lockstep/apps/inspect_data/number_bins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

namespace lockstep::apps {
namespace {

/// Counts by the lower ends of bins, by the definition of bins with this width.
std::map<double, int64_t> counted_by_hand(const std::vector<double>& numbers, double width) {
  std::map<double, int64_t> counts;
  for (const double number : numbers) ++counts[std::floor(number / width) * width];
  return counts;
}

std::map<double, int64_t> counts_of(const NumberBins& bins) {
  std::map<double, int64_t> counts;
  for (size_t i = 0; i < bins.counts().size(); ++i)
    if (bins.counts()[i] > 0) counts[bins.low(i)] = bins.counts()[i];
  return counts;
}

std::vector<std::vector<double>> number_sets() {
  std::mt19937_64 draw(1);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> sets{
      {5}, {0}, {-3, -3, -3}, {0, 1}, {0.1, 1e9}, {-1e30, 1e-30, 4}, {1e308, -1e308}};
  for (const double scale : {1e-9, 1.0, 1e12}) {
    auto& set = sets.emplace_back();
    for (int i = 0; i < 2000; ++i) set.push_back(scale * std::exp(normal(draw)) * (i % 3 == 0 ? -1 : 1));
  }
  return sets;
}

TEST(NumberBins, CountEachNumberInTheBinThatHoldsIt) {
  for (const auto& numbers : number_sets()) {
    NumberBins bins;
    bins.add(numbers);
    EXPECT_LE(bins.counts().size(), 64U);
    EXPECT_EQ(std::exp2(std::ilogb(bins.width())), bins.width()) << "no power of two";
    EXPECT_EQ(counts_of(bins), counted_by_hand(numbers, bins.width()));
  }
}

TEST(NumberBins, AreAsFineAs64BinsCanBe) {
  NumberBins bins;
  bins.add(std::vector<double>{0, 63.5});
  EXPECT_EQ(bins.width(), 1);
  bins.add(std::vector<double>{64});
  EXPECT_EQ(bins.width(), 2);
  NumberBins fine;
  fine.add(std::vector<double>{1, 1.25});
  EXPECT_EQ(fine.width(), 0x1p-7);  // 33 bins; half as wide would be 65
}

TEST(NumberBins, DoNotDependOnOrderAndParts) {
  std::mt19937_64 draw(2);
  for (auto numbers : number_sets()) {
    NumberBins whole;
    whole.add(numbers);
    for (int round = 0; round < 5; ++round) {
      std::shuffle(numbers.begin(), numbers.end(), draw);
      const size_t cut = draw() % (numbers.size() + 1);
      NumberBins first, second;
      for (size_t i = 0; i < numbers.size(); ++i) (i < cut ? first : second).add({&numbers[i], 1});
      first.merge(second);
      EXPECT_EQ(first.counts(), whole.counts());
      EXPECT_EQ(first.low(), whole.low());
      EXPECT_EQ(first.width(), whole.width());
    }
  }
}

TEST(NumberBins, OfWholeNumbersAreAtLeastOneWide) {
  NumberBins bins(true);
  bins.add(std::vector<double>{3, 4, 4});
  EXPECT_EQ(bins.low(), 3);
  EXPECT_EQ(bins.width(), 1);
  EXPECT_EQ(bins.counts(), (std::vector<int64_t>{1, 2}));
  bins.add(std::vector<double>{-0x1p63, 0x1p63});
  EXPECT_EQ(bins.counts().size(), 33U);
  EXPECT_EQ(std::accumulate(bins.counts().begin(), bins.counts().end(), int64_t{0}), 5);
}

}  // namespace
}  // namespace lockstep::apps
