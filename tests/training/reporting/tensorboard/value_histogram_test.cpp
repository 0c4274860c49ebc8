#include "lockstep/training/reporting/tensorboard/value_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/odd_numbers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kInfinity;
using testing::kNan;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

TEST(ValueHistogramTest, CountsWhatLiesBetweenItsEdges) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(0.5, 2);
  std::vector<double> values(1000);
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  const auto histogram = make_histogram(values, 12);
  ASSERT_THAT(histogram.bins, SizeIs(12));
  EXPECT_EQ(histogram.bins.front().left, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(histogram.bins.back().right, *std::max_element(values.begin(), values.end()));
  for (size_t bin = 0; bin < 12; ++bin) {
    const auto& [left, right, count] = histogram.bins[bin];
    EXPECT_EQ(count,
              std::count_if(values.begin(), values.end(), [&, left = left, right = right](double value) {
                return left <= value && (value < right || (bin == 11 && value == right));
              }));
    EXPECT_TRUE(bin == 0 || left == histogram.bins[bin - 1].right);
  }
}

TEST(ValueHistogramTest, LeavesOutWhatIsNotFiniteAndSaysHowMuch) {
  const std::vector<float> values = {1, NAN, 2, INFINITY, -INFINITY};
  const auto histogram = make_histogram(values, 2);
  EXPECT_EQ(histogram.num_not_finite, 3);
  ASSERT_THAT(histogram.bins, SizeIs(2));
  EXPECT_EQ(histogram.bins[0].left, 1);
  EXPECT_EQ(histogram.bins[0].count, 1);
  EXPECT_EQ(histogram.bins[1].count, 1);
}

TEST(ValueHistogramTest, HasOneBinForOneValueAndNoneForNone) {
  const auto same = make_histogram(std::vector<double>{3, 3, 3});
  ASSERT_THAT(same.bins, SizeIs(1));
  EXPECT_EQ(same.bins[0].left, 3);
  EXPECT_EQ(same.bins[0].right, 3);
  EXPECT_EQ(same.bins[0].count, 3);
  EXPECT_THAT(make_histogram(std::vector<double>{}).bins, IsEmpty());
  EXPECT_THAT(make_histogram(std::vector<double>{kNan, kInfinity}).bins, IsEmpty());
}

TEST(ValueHistogramTest, SpansTheWholeRangeOfDoubles) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
  for (const auto& values :
       {std::vector<double>{-kLargest, 0, kLargest}, {0, kSmallest}, {-kSmallest, kSmallest}}) {
    const auto histogram = make_histogram(values, 3);
    int64_t count = 0;
    for (const auto& bin : histogram.bins) {
      EXPECT_TRUE(std::isfinite(bin.left) && std::isfinite(bin.right));
      EXPECT_LE(bin.left, bin.right);
      count += bin.count;
    }
    EXPECT_EQ(count, static_cast<int64_t>(values.size()));
  }
}

TEST(ValueHistogramTest, RefusesNoBins) {
  EXPECT_THAT([] { make_histogram(std::vector<double>{1}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected at least one bin, but got 0")));
}

}  // namespace
}  // namespace lockstep
