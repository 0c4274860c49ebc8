#include "lockstep/training/reporting/records/measured_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr double kRounding = 1e-12;

/// A pipeline that takes exactly these times.
PipelineTimeline exact(const PipelineSchedule& schedule, double forward = 1, double backward = 2) {
  return simulate_pipeline(schedule, uniform_pipeline_times(schedule, forward, backward));
}

TEST(PipelineRecordOfAStepTest, PlansTheBubbleOfTheFormulas) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const int micro_batches : {ranks, 2 * ranks, 4 * ranks}) {
      const double waits = ranks - 1;
      const auto bubble = [&](const PipelineSchedule& schedule) {
        const auto record = pipeline_record(schedule, exact(schedule));
        EXPECT_NEAR(record.bubble, record.planned_bubble, kRounding) << schedule.name;
        EXPECT_NEAR(record.seconds, record.planned_seconds, kRounding) << schedule.name;
        return record.planned_bubble;
      };
      EXPECT_NEAR(bubble(gpipe_schedule(ranks, micro_batches)), waits / (micro_batches + waits), kRounding);
      EXPECT_NEAR(bubble(one_forward_one_backward_schedule(ranks, micro_batches)),
                  waits / (micro_batches + waits), kRounding);
      EXPECT_NEAR(bubble(interleaved_schedule(ranks, 2, micro_batches)), waits / (2 * micro_batches + waits),
                  kRounding);
      EXPECT_NEAR(bubble(zero_bubble_schedule(ranks, micro_batches)), waits / (3 * micro_batches + waits),
                  kRounding);
    }
  }
}

TEST(PipelineRecordOfAStepTest, HasTheActionsOfAllRanksInOrder) {
  const auto schedule = zero_bubble_v_schedule(3, 5);
  const auto record = pipeline_record(schedule, exact(schedule, 2, 3), {.step = 7});
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.schedule, "zb-v");
  EXPECT_EQ(record.ranks, 3);
  EXPECT_EQ(record.stages, 6);
  EXPECT_EQ(record.micro_batches, 5);
  size_t at = 0;
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const auto& action : schedule.actions[rank]) {
      ASSERT_LT(at, record.actions.size());
      const auto& recorded = record.actions[at++];
      EXPECT_EQ(recorded.rank, static_cast<int64_t>(rank));
      EXPECT_EQ(recorded.action, action);
      EXPECT_NEAR(recorded.begin, recorded.planned_begin, kRounding) << describe(action);
      EXPECT_NEAR(recorded.end, recorded.planned_end, kRounding) << describe(action);
    }
  }
  EXPECT_EQ(record.num_actions, static_cast<int64_t>(at));
}

TEST(PipelineRecordOfAStepTest, TakesTheTimesOfEachStageAndHalf) {
  const auto schedule = zero_bubble_schedule(2, 4);
  const PipelineTimes times{.stages = {{1, 2, 3}, {4, 5, 6}}};
  const auto found = median_pipeline_times(schedule, simulate_pipeline(schedule, times));
  ASSERT_THAT(found.stages, SizeIs(2));
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_NEAR(found.stages[stage].forward, times.stages[stage].forward, kRounding);
    EXPECT_NEAR(found.stages[stage].backward_inputs, times.stages[stage].backward_inputs, kRounding);
    EXPECT_NEAR(found.stages[stage].backward_weights, times.stages[stage].backward_weights, kRounding);
  }
  // Whole backwards are halved.
  const auto whole = gpipe_schedule(2, 4);
  const auto halves = median_pipeline_times(whole, simulate_pipeline(whole, times));
  EXPECT_NEAR(halves.stages[1].backward_inputs, 5.5, kRounding);
  EXPECT_NEAR(halves.stages[1].backward_weights, 5.5, kRounding);
  const auto forward = forward_schedule({0, 1}, 3);
  EXPECT_EQ(median_pipeline_times(forward, simulate_pipeline(forward, times)).stages[1].backward_inputs, 0);
}

TEST(PipelineRecordOfAStepTest, ASlowMicroBatchDoesNotChangeThePlan) {
  const auto schedule = gpipe_schedule(2, 3);
  PipelineTimeline measured = exact(schedule);
  // The last computation of the first rank takes 7 instead of 2.
  measured.ranks[0].back().end += 5;
  const auto record = pipeline_record(schedule, measured);
  EXPECT_NEAR(record.planned_seconds, 3 * (3 + 1), kRounding);
  EXPECT_NEAR(record.seconds, record.planned_seconds + 5, kRounding);
}

TEST(PipelineRecordOfAStepTest, BeginsWithTheFirstComputation) {
  const auto schedule = one_forward_one_backward_schedule(2, 2);
  PipelineTimeline measured = exact(schedule);
  for (auto& rank : measured.ranks) {
    for (auto& action : rank) {
      action.begin += 100;
      action.end += 100;
    }
  }
  // Rank 1 began to wait for its first message long before.
  ASSERT_EQ(measured.ranks[1].front().action.op, PipelineOp::kReceiveActivation);
  measured.ranks[1].front().begin = 1;
  const auto record = pipeline_record(schedule, measured);
  for (const auto& action : record.actions) {
    EXPECT_NEAR(action.begin, action.planned_begin, kRounding) << describe(action.action);
    EXPECT_NEAR(action.end, action.planned_end, kRounding) << describe(action.action);
  }
  EXPECT_NEAR(record.seconds, 9, kRounding);
}

TEST(PipelineRecordOfAStepTest, PlansWithTheTransferAndBuffersOfTheOptions) {
  const auto schedule = gpipe_schedule(2, 1);
  EXPECT_NEAR(pipeline_record(schedule, exact(schedule), {.transfer = 0.5}).planned_seconds, 6 + 2 * 0.5,
              kRounding);
  EXPECT_THAT([&] { pipeline_record(schedule, exact(schedule), {.buffers = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("buffer")));
}

TEST(PipelineRecordOfAStepTest, RefusesTimesOfAnotherSchedule) {
  const auto schedule = gpipe_schedule(2, 3);
  const auto expect_refused = [&](const auto& damage, const std::string& text) {
    PipelineTimeline measured = exact(schedule);
    damage(measured);
    EXPECT_THAT([&] { pipeline_record(schedule, measured); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  expect_refused([](auto& measured) { measured.ranks.pop_back(); },
                 "[pipeline_record] expected the measured times of 2 ranks, but got those of 1");
  expect_refused([](auto& measured) { measured.ranks[1].pop_back(); },
                 "expected that rank 1 does the schedule's actions in order, number 12 being sending the "
                 "gradient of stage 1 for micro-batch 2, but got nothing more");
  expect_refused([](auto& measured) { measured.ranks[0].push_back(measured.ranks[0].back()); },
                 "being nothing more, but got backward of stage 0 for micro-batch 2");
  expect_refused([](auto& measured) { std::swap(measured.ranks[0][0], measured.ranks[0][2]); },
                 "number 1 being forward of stage 0 for micro-batch 0, but got forward of stage 0 for "
                 "micro-batch 1");
  expect_refused([](auto& measured) { measured.ranks[0][0].end = -1; },
                 "expected that forward of stage 0 for micro-batch 0 on rank 0 begins and then ends");
  expect_refused([](auto& measured) { measured.ranks[1][3].begin = std::nan(""); }, "but got times from nan");
  expect_refused([](auto& measured) { measured.ranks[1][3].end = HUGE_VAL; }, "to inf s");
}

}  // namespace
}  // namespace lockstep
