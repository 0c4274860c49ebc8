#include "lockstep/parameter_server/shards/row_count_sketch.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Numbers of which small ones are frequent.
int64_t skewed(std::mt19937_64& random) {
  return static_cast<int64_t>(random() % (1 + random() % 20000)) * 0x1234567;
}

TEST(RowCountSketch, CountsAreExactWhileTheSketchIsLarge) {
  RowCountSketch sketch(1 << 22);
  std::map<int64_t, int64_t> counts;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const int64_t row = skewed(random);
    ASSERT_EQ(sketch.add(row), ++counts[row]);
  }
  EXPECT_EQ(sketch.bytes(), 1 << 22);
}

TEST(RowCountSketch, CountsAreNeverTooLowAndHardlyTooHigh) {
  constexpr int kAdded = 100'000;
  RowCountSketch sketch(1 << 16);
  EXPECT_EQ(sketch.bytes(), 1 << 16);
  const int64_t width = sketch.counters().size(1);
  std::map<int64_t, int64_t> counts;
  std::mt19937_64 random(2);
  for (int i = 0; i < kAdded; ++i) {
    const int64_t row = skewed(random);
    ASSERT_GE(sketch.add(row), ++counts[row]);
  }
  int64_t num_far = 0;
  for (const auto& [row, count] : counts) {
    ASSERT_GE(sketch.count(row), count);
    // A count exceeds the true one by more than e/width of all with probability e^-depth at most (Cormode and
    // Muthukrishnan, 2005, theorem 1).
    num_far +=
        static_cast<double>(sketch.count(row) - count) > 2.7182818 * kAdded / static_cast<double>(width);
  }
  EXPECT_LE(static_cast<double>(num_far), 0.0184 * static_cast<double>(counts.size()));
}

TEST(RowCountSketch, HalvesItsCountsAndStopsAtTheLargest) {
  RowCountSketch sketch(1 << 12);
  for (int i = 0; i < 5; ++i) sketch.add(3);
  sketch.halve();
  EXPECT_EQ(sketch.count(3), 2);
  for (int i = 0; i < RowCountSketch::kMaxCount + 10; ++i) sketch.add(9);
  EXPECT_EQ(sketch.count(9), RowCountSketch::kMaxCount);
}

TEST(RowCountSketch, ASketchOfAnotherWidthRestoresNoLowerCounts) {
  RowCountSketch sketch(1 << 14);
  std::map<int64_t, int64_t> counts;
  std::mt19937_64 random(3);
  for (int i = 0; i < 3000; ++i) sketch.add(skewed(random));
  std::mt19937_64 again(3);
  for (int i = 0; i < 3000; ++i) {
    const auto row = skewed(again);
    counts[row] = sketch.count(row);
  }
  for (const int64_t bytes : {1 << 11, 1 << 14, 1 << 17}) {
    RowCountSketch other(bytes);
    other.restore(sketch.counters());
    for (const auto& [row, count] : counts) {
      ASSERT_GE(other.count(row), count);
      if (bytes >= 1 << 14) {
        ASSERT_EQ(other.count(row), count);
      }
    }
  }
}

TEST(RowCountSketch, RefusesCountersOfNoSketch) {
  RowCountSketch sketch(1 << 12);
  for (const auto& wrong : {at::zeros({4, 96}, at::kShort), at::zeros({3, 64}, at::kShort),
                            at::zeros({4, 64}, at::kInt), at::Tensor()})
    EXPECT_THAT([&] { sketch.restore(wrong); }, ThrowsMessage<InvalidArgument>(HasSubstr("row_counts")));
}

}  // namespace
}  // namespace lockstep
