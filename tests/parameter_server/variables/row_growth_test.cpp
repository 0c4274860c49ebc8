#include "lockstep/parameter_server/variables/row_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RowGrowth, EveryIdOfASmallRangeHasARowOfItsOwn) {
  for (const int bits : {2, 3, 8, 13}) {
    std::vector<int> times(size_t{1} << bits);
    for (int64_t id = 0; id < int64_t{1} << bits; ++id) {
      const int64_t row = scattered_row(id, bits);
      ASSERT_GE(row, 0);
      ASSERT_LT(row, int64_t{1} << bits);
      ++times[static_cast<size_t>(row)];
      ASSERT_EQ(id_of_scattered_row(row, bits), id);
    }
    for (const int count : times) ASSERT_EQ(count, 1);
  }
}

TEST(RowGrowth, AnIdIsFoundAgainFromItsRow) {
  std::mt19937_64 random(5);
  for (const int bits : {31, 32, 55, 58, 62}) {
    for (int i = 0; i < 1000; ++i) {
      const auto id = static_cast<int64_t>(random() >> (64 - bits));
      ASSERT_EQ(id_of_scattered_row(scattered_row(id, bits), bits), id);
    }
  }
}

TEST(RowGrowth, EqualPartsOfTheRowsGetAboutAsManyConsecutiveIds) {
  constexpr int kBits = 55;
  std::array<int, 3> counts{};
  for (int64_t id = 0; id < 30000; ++id)
    ++counts[static_cast<size_t>(scattered_row(id, kBits) / ((int64_t{1} << kBits) / 3 + 1))];
  // Drawn at random, a part has 10000 with a standard deviation of 82.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 410);
}

TEST(RowGrowth, TheBytesOfATableStayBelow2To62) {
  for (const int64_t columns : {1, 2, 3, 16, 17, 1000, 1 << 24}) {
    const int bits = row_bits_of(columns);
    const auto bytes = static_cast<double>(columns) * 8 * static_cast<double>(uint64_t{1} << bits);
    EXPECT_LE(bytes, 0x1p62);
    EXPECT_GT(bytes, 0x1p61 / 2);
  }
  EXPECT_THAT([] { row_bits_of(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("but got 0")));
  EXPECT_THAT([] { row_bits_of((1 << 24) + 1); }, ThrowsMessage<InvalidArgument>(HasSubstr("16777217")));
}

}  // namespace
}  // namespace lockstep
