#include "lockstep/runtime/base/internal/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "lockstep/tests/support/odd_numbers.h"

namespace lockstep {
namespace {

using testing::kInfinity;

TEST(NumberTextTest, ReadsBackExactly) {
  for (const double value : {0.1, 1.0 / 3, 1e-7, 5e-324, 1e23, 1.7976931348623157e308, -0.0, 100000.0}) {
    const double again = std::strtod(exact_number(value).c_str(), nullptr);
    EXPECT_EQ(again, value);
    EXPECT_EQ(std::signbit(again), std::signbit(value));
  }
  EXPECT_EQ(exact_number(0.1), "0.1");
  EXPECT_EQ(exact_number(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(exact_number(-std::nan("")), "nan");
  EXPECT_EQ(exact_number(kInfinity), "inf");
  EXPECT_EQ(exact_number(-kInfinity), "-inf");
}

TEST(NumberTextTest, RoundsToSignificantDigits) {
  EXPECT_EQ(short_number(0.98345678), "0.9835");
  EXPECT_EQ(short_number(12.3), "12.3");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(1.0 / 3, 2), "0.33");
  EXPECT_EQ(short_number(-1.5e-5), "-1.5e-5");
  EXPECT_EQ(short_number(3e200), "3e200");
}

TEST(NumberTextTest, LeavesOutNoDigitBeforeThePoint) {
  EXPECT_EQ(short_number(123456.7), "123457");
  EXPECT_EQ(short_number(-9999.9), "-1e4");
  EXPECT_EQ(short_number(12345678), "1.235e7");
}

TEST(NumberTextTest, NamesWhatIsNoNumber) {
  EXPECT_EQ(short_number(std::nan("")), "nan");
  EXPECT_EQ(short_number(-kInfinity), "-inf");
  EXPECT_EQ(percent_text(std::nan("")), "nan");
  EXPECT_EQ(seconds_text(std::nan("")), "unknown");
  EXPECT_EQ(seconds_text(-1), "unknown");
  EXPECT_EQ(seconds_text(kInfinity), "unknown");
}

TEST(NumberTextTest, WritesSharesInPercent) {
  EXPECT_EQ(percent_text(0.98307), "98.31\u202F%");
  EXPECT_EQ(percent_text(1, 0), "100\u202F%");
}

TEST(NumberTextTest, GroupsDigitsByThree) {
  EXPECT_EQ(grouped_number(999), "999");
  EXPECT_EQ(grouped_number(-999), "-999");
  EXPECT_EQ(grouped_number(1000), "1\u202F000");
  EXPECT_EQ(grouped_number(-1234567), "-1\u202F234\u202F567");
  EXPECT_EQ(grouped_number(std::numeric_limits<int64_t>::min()),
            "-9\u202F223\u202F372\u202F036\u202F854\u202F775\u202F808");
}

TEST(NumberTextTest, WritesDurationsInTheirTwoLargestUnits) {
  EXPECT_EQ(seconds_text(0.031), "0.03 s");
  EXPECT_EQ(seconds_text(9.999), "10.0 s");
  EXPECT_EQ(seconds_text(59.4), "59.4 s");
  EXPECT_EQ(seconds_text(59.6), "1 min 00 s");
  EXPECT_EQ(seconds_text(312), "5 min 12 s");
  EXPECT_EQ(seconds_text(3599.7), "1 h 00 min");
  EXPECT_EQ(seconds_text(7500), "2 h 05 min");
  EXPECT_EQ(seconds_text(273906), "3 d 04 h");
}

TEST(NumberTextTest, WritesSizesInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(uint64_t{13} << 20), "13.0 MiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 50), "5120.0 TiB");
}

}  // namespace
}  // namespace lockstep
