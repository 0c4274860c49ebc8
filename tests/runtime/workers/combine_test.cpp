#include "lockstep/runtime/workers/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr int kHalves = 65536;

c10::Half half(int bits) {
  return {static_cast<uint16_t>(bits), c10::Half::from_bits()};
}

/// Every value of float16 from `first` on, and then from 0.
std::vector<c10::Half> all_halves_from(int first) {
  std::vector<c10::Half> values;
  for (int i = 0; i < kHalves; ++i) values.push_back(half((first + i) % kHalves));
  return values;
}

std::vector<c10::Half> combined(c10d::ReduceOp::RedOpType op, std::vector<c10::Half> into,
                                const std::vector<c10::Half>& from) {
  combine_function(op, at::kHalf)(reinterpret_cast<uint8_t*>(into.data()),
                                  reinterpret_cast<const uint8_t*>(from.data()), into.size());
  return into;
}

/// Whether both have the same bits, or both are NaNs.
bool are_equal(c10::Half a, c10::Half b) {
  return (std::isnan(a) && std::isnan(b)) || a.x == b.x;
}

TEST(Combine, RoundsEveryFloat16SumAsC10DoesIt) {
  for (const int distance : {0, 1, 1023, 0x8000, 0x83ff, 40961}) {
    const std::vector<c10::Half> a = all_halves_from(0);
    const std::vector<c10::Half> b = all_halves_from(distance);
    const std::vector<c10::Half> sums = combined(c10d::ReduceOp::SUM, a, b);
    const std::vector<c10::Half> products = combined(c10d::ReduceOp::PRODUCT, a, b);
    for (int i = 0; i < kHalves; ++i) {
      const float x = a[i];
      const float y = b[i];
      ASSERT_TRUE(are_equal(sums[i], c10::Half(x + y))) << a[i].x << " + " << b[i].x << " = " << sums[i].x;
      ASSERT_TRUE(are_equal(products[i], c10::Half(x * y))) << a[i].x << " * " << b[i].x;
    }
  }
}

TEST(Combine, AddsAnyNumberOfFloat16ValuesAtAnyAddressAndLeavesTheOthersAlone) {
  const c10::Half one(1.0F);
  for (size_t count = 0; count <= 19; ++count) {
    for (const size_t offset : {0, 1, 2, 7}) {
      std::vector<uint8_t> into(64, 0xa5);
      std::vector<uint8_t> from(64, 0x5a);
      for (size_t i = 0; i < count; ++i) {
        const c10::Half value(static_cast<float>(i));
        std::memcpy(into.data() + offset + 2 * i, &value, 2);
        std::memcpy(from.data() + offset + 2 * i, &one, 2);
      }
      combine_function(c10d::ReduceOp::SUM, at::kHalf)(into.data() + offset, from.data() + offset, count);
      for (size_t i = 0; i < count; ++i) {
        c10::Half sum;
        std::memcpy(&sum, into.data() + offset + 2 * i, 2);
        ASSERT_EQ(static_cast<float>(sum), static_cast<float>(i + 1));
      }
      for (size_t i = 0; i < into.size(); ++i) {
        if (i >= offset && i < offset + 2 * count) continue;
        ASSERT_EQ(into[i], 0xa5) << "byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
