#include "lockstep/training/reporting/html/internal/plot_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> labels_of(const PlotAxis& axis) {
  std::vector<std::string> labels;
  for (const auto& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}

TEST(PlotAxisTest, HasTicksAtRoundValues) {
  EXPECT_THAT(labels_of(make_axis(0.04, 0.45, {})), ElementsAre("0", "0.1", "0.2", "0.3", "0.4", "0.5"));
  EXPECT_THAT(labels_of(make_axis(-3, 7, {})), ElementsAre("\u22124", "\u22122", "0", "2", "4", "6", "8"));
  EXPECT_THAT(labels_of(make_axis(0, 5000, {})),
              ElementsAre("0", "1\u202F000", "2\u202F000", "3\u202F000", "4\u202F000", "5\u202F000"));
  EXPECT_THAT(labels_of(make_axis(0, 5e-6, {})), ElementsAre("0", "1e-6", "2e-6", "3e-6", "4e-6", "5e-6"));
  EXPECT_THAT(labels_of(make_axis(0.9, 1, {.numbers = AxisNumbers::kPercent})),
              ElementsAre("90\u202F%", "92\u202F%", "94\u202F%", "96\u202F%", "98\u202F%", "100\u202F%"));
}

TEST(PlotAxisTest, EndsWhereItsValuesDoIfItIsToldTo) {
  const PlotAxis axis = make_axis(1, 10, {.numbers = AxisNumbers::kWhole, .ends_at_ticks = false});
  EXPECT_EQ(axis.low, 1);
  EXPECT_EQ(axis.high, 10);
  EXPECT_THAT(labels_of(axis), ElementsAre("2", "4", "6", "8", "10"));
}

TEST(PlotAxisTest, HasWholeTicksForWhatIsCounted) {
  EXPECT_THAT(labels_of(make_axis(1, 3, {.numbers = AxisNumbers::kWhole})), ElementsAre("1", "2", "3"));
  EXPECT_THAT(labels_of(make_axis(1, 1, {.numbers = AxisNumbers::kWhole})), ElementsAre("0", "1", "2"));
}

TEST(PlotAxisTest, HasRoomAroundASingleValue) {
  for (const double value : {0.0, 5.0, -2e-9, 1e300, -1e300, 1.7e308, 5e-324}) {
    const PlotAxis axis = make_axis(value, value, {});
    EXPECT_LT(axis.low, axis.high) << value;
    EXPECT_GE(axis.ticks.size(), 2U) << value;
  }
}

// Any range is covered by a few ticks with distinct labels.
TEST(PlotAxisTest, CoversAnyRangeByAFewTicks) {
  std::mt19937_64 generator(11);
  std::uniform_real_distribution<double> exponent(-20, 20);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  for (int round = 0; round < 20000; ++round) {
    double low = mantissa(generator) * std::pow(10, exponent(generator));
    double high = round % 3 == 0 ? low * (1 + 1e-3 * mantissa(generator))
                                 : mantissa(generator) * std::pow(10, exponent(generator));
    if (low > high) std::swap(low, high);
    const PlotAxis axis = make_axis(low, high, {});
    ASSERT_LE(axis.low, low + 1e-5 * (high - low)) << low << " " << high;
    ASSERT_GE(axis.high, high - 1e-5 * (high - low)) << low << " " << high;
    ASSERT_GE(axis.ticks.size(), 2U) << low << " " << high;
    ASSERT_LE(axis.ticks.size(), 8U) << low << " " << high;
    std::set<std::string> labels;
    for (const auto& tick : axis.ticks) labels.insert(tick.label);
    ASSERT_EQ(labels.size(), axis.ticks.size()) << low << " " << high << " " << axis.ticks[0].label;
  }
}

}  // namespace
}  // namespace lockstep
