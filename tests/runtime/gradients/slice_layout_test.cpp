#include "lockstep/runtime/gradients/slice_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep {
namespace {

TEST(SliceLayout, RoundsUpToEqualPartsOfWholeUnits) {
  EXPECT_EQ(numel_in_parts(0, 4, 16), 0);
  EXPECT_EQ(numel_in_parts(1, 4, 16), 64);
  EXPECT_EQ(numel_in_parts(64, 4, 16), 64);
  EXPECT_EQ(numel_in_parts(65, 4, 16), 128);
  EXPECT_EQ(numel_in_parts(7, 1, 1), 7);
  EXPECT_EQ(numel_in_parts(7, 3, 2), 12);
}

TEST(SliceLayout, CutsASlotWhereAPartEnds) {
  const std::vector<BucketSlot> slots{{.parameter = 3, .begin = 0, .length = 10},
                                      {.parameter = 1, .begin = 10, .length = 0},
                                      {.parameter = 0, .begin = 12, .length = 4}};
  EXPECT_EQ(
      slices_of({.bucket = 5, .begin = 0, .length = 8}, slots),
      (std::vector<ParameterSlice>{{.parameter = 3, .offset = 0, .length = 8, .bucket = 5, .position = 0}}));
  EXPECT_EQ(
      slices_of({.bucket = 5, .begin = 8, .length = 8}, slots),
      (std::vector<ParameterSlice>{{.parameter = 3, .offset = 8, .length = 2, .bucket = 5, .position = 8},
                                   {.parameter = 0, .offset = 0, .length = 4, .bucket = 5, .position = 12}}));
  EXPECT_TRUE(slices_of({.bucket = 5, .begin = 16, .length = 8}, slots).empty());
}

TEST(SliceLayout, ThePartsOfAllRanksHoldEveryElementOnce) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<BucketSlot> slots;
    int64_t end = 0;
    const size_t num_slots = 1 + random() % 8;
    for (size_t i = 0; i < num_slots; ++i) {
      const auto length = static_cast<int64_t>(random() % 40);
      slots.push_back({.parameter = i, .begin = end, .length = length});
      end += length + static_cast<int64_t>(random() % 3);  // gaps of an alignment
    }
    const int num_parts = 1 + static_cast<int>(random() % 5);
    const int64_t length = numel_in_parts(end, num_parts, 8) / num_parts;
    std::map<std::pair<size_t, int64_t>, int> owners;
    for (int part = 0; part < num_parts; ++part) {
      for (const auto& slice : slices_of({.begin = part * length, .length = length}, slots)) {
        ASSERT_GE(slice.length, 1);
        EXPECT_EQ(slice.position, slots[slice.parameter].begin + slice.offset);
        for (int64_t i = 0; i < slice.length; ++i) ++owners[{slice.parameter, slice.offset + i}];
      }
    }
    size_t elements = 0;
    for (const auto& slot : slots) elements += static_cast<size_t>(slot.length);
    EXPECT_EQ(owners.size(), elements);
    for (const auto& [element, count] : owners) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace lockstep
