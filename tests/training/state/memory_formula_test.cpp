// Bytes that were computed by hand from the table of ZeRO's paper.
#include "lockstep/training/state/memory_formula.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMillion = 1'000'000;

/// Ten million float32 parameters with Adam: 40 MB of them, 40 MB of gradients, 80 MB of state.
MemoryLayout adam_layout(int stage, int64_t num_parts) {
  return {.parameters = {{.elements = 10 * kMillion, .states = 2}}, .stage = stage, .num_parts = num_parts};
}

TEST(MemoryFormulaTest, StageZeroKeepsSixteenBytesAParameterOnEveryRank) {
  for (const int64_t num_parts : {1, 2, 4}) {
    const auto memory = predict_memory(adam_layout(0, num_parts));
    EXPECT_EQ(memory.parameters, 40 * kMillion);
    EXPECT_EQ(memory.gradients, 40 * kMillion);
    EXPECT_EQ(memory.optimizer_state, 80 * kMillion);
    EXPECT_EQ(memory.buckets, 0);
    EXPECT_EQ(memory.gathered_units, 0);
    EXPECT_EQ(memory.sum(), 160 * kMillion);
  }
}

TEST(MemoryFormulaTest, StageOneDividesTheState) {
  EXPECT_EQ(predict_memory(adam_layout(1, 1)).sum(), 160 * kMillion);
  EXPECT_EQ(predict_memory(adam_layout(1, 2)).optimizer_state, 40 * kMillion);
  EXPECT_EQ(predict_memory(adam_layout(1, 4)).optimizer_state, 20 * kMillion);
  EXPECT_EQ(predict_memory(adam_layout(1, 4)).sum(), 100 * kMillion);
}

TEST(MemoryFormulaTest, StageTwoDividesTheGradientsTooAndNeedsTwoBuckets) {
  // Layers of 1, 2, 3 and 4 MB; a bucket is closed at 3 MB. Filled from the end: 4, 3, and 2 + 1.
  MemoryLayout layout{.stage = 2,
                      .num_parts = 4,
                      .buckets = {.first_bucket_bytes = 3 * kMillion, .bucket_bytes = 3 * kMillion}};
  for (const int64_t megabytes : {1, 2, 3, 4})
    layout.parameters.push_back({.elements = megabytes * kMillion / 4, .states = 2});
  const auto memory = predict_memory(layout);
  EXPECT_EQ(memory.parameters, 10 * kMillion);
  EXPECT_EQ(memory.gradients, 10 * kMillion / 4);
  EXPECT_EQ(memory.optimizer_state, 20 * kMillion / 4);
  EXPECT_EQ(memory.buckets, 7 * kMillion);
  // Each bucket has a copy of half its size in bfloat16.
  layout.summed_element_bytes = 2;
  EXPECT_EQ(predict_memory(layout).buckets, 7 * kMillion * 3 / 2);
}

TEST(MemoryFormulaTest, StageThreeDividesUnitsAndGathersTheLargest) {
  // Units of 8 and 4 MB, and a head of 2 MB that is no unit.
  MemoryLayout layout{.parameters = {{.elements = kMillion, .states = 2, .unit = 0},
                                     {.elements = kMillion, .states = 2, .unit = 0},
                                     {.elements = kMillion, .states = 2, .unit = 1},
                                     {.elements = kMillion / 2, .states = 2}},
                      .stage = 3,
                      .num_parts = 4};
  const auto memory = predict_memory(layout);
  EXPECT_EQ(memory.parameters, 12 * kMillion / 4 + 2 * kMillion);
  EXPECT_EQ(memory.gradients, 12 * kMillion / 4 + 2 * kMillion);
  EXPECT_EQ(memory.optimizer_state, 24 * kMillion / 4 + 4 * kMillion);
  EXPECT_EQ(memory.gathered_units, 8 * kMillion);
  EXPECT_EQ(memory.buckets, 0);
  layout.units_at_once = 2;
  EXPECT_EQ(predict_memory(layout).gathered_units, 12 * kMillion);
  layout.units_shared_by = 4;
  EXPECT_EQ(predict_memory(layout).gathered_units, 12 * kMillion / 4);
  layout.num_parts = 1;
  EXPECT_EQ(predict_memory(layout).gathered_units, 0);
  EXPECT_EQ(predict_memory(layout).sum(), 14 * kMillion * 4);
}

TEST(MemoryFormulaTest, FrozenParametersHaveValuesOnly) {
  for (const int stage : {0, 1, 2}) {
    const auto memory =
        predict_memory({.parameters = {{.elements = kMillion, .states = 2, .is_trained = false}},
                        .stage = stage,
                        .num_parts = 2});
    EXPECT_EQ(memory.sum(), 4 * kMillion) << stage;
    EXPECT_EQ(memory.parameters, 4 * kMillion) << stage;
  }
}

TEST(MemoryFormulaTest, SharesAreRoundedUpToElementsOfTheDtype) {
  const auto memory = predict_memory(
      {.parameters = {{.elements = 10, .element_bytes = 8, .states = 1}}, .stage = 1, .num_parts = 4});
  EXPECT_EQ(memory.parameters, 80);
  EXPECT_EQ(memory.optimizer_state, 3 * 8);
}

TEST(MemoryFormulaTest, CopiesInAShorterDtypeCountAsBuckets) {
  auto layout = adam_layout(1, 2);
  layout.summed_element_bytes = 2;
  EXPECT_EQ(predict_memory(layout).buckets, 20 * kMillion);
  layout.parameters[0].element_bytes = 2;  // not longer than its sums
  EXPECT_EQ(predict_memory(layout).buckets, 0);
}

TEST(MemoryFormulaTest, AnOptimizerThatIsNotKnownLeavesTheStateOut) {
  auto layout = adam_layout(0, 1);
  layout.parameters.push_back({.elements = 1, .states = std::nullopt});
  EXPECT_FALSE(predict_memory(layout).optimizer_state.has_value());
  EXPECT_EQ(predict_memory(layout).parameters, 40 * kMillion + 4);
}

TEST(MemoryFormulaTest, RefusesLayoutsThatDoNotExist) {
  const auto error_of = [](const MemoryLayout& layout) {
    return message_of<InvalidArgument>([&] { predict_memory(layout); });
  };
  EXPECT_THAT(error_of(adam_layout(4, 2)), HasSubstr("expected a stage from 0 to 3, but got 4"));
  EXPECT_THAT(error_of(adam_layout(-1, 2)), HasSubstr("expected a stage from 0 to 3, but got -1"));
  EXPECT_THAT(error_of(adam_layout(1, 0)), HasSubstr("expected 1 or more parts, but got 0"));
  auto layout = adam_layout(2, 2);
  layout.parameters[0].unit = 0;
  EXPECT_THAT(error_of(layout), HasSubstr("expected units in stage 3 only, but got 2"));
  layout = adam_layout(0, 1);
  layout.parameters[0].elements = -1;
  EXPECT_THAT(error_of(layout), HasSubstr("expected 0 or more elements, but got -1"));
  layout = adam_layout(0, 1);
  layout.units_at_once = 0;
  EXPECT_THAT(error_of(layout), HasSubstr("expected 1 or more units at once, but got 0"));
}

}  // namespace
}  // namespace lockstep
