#include "lockstep/strategies/pipeline/pipeline_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Op = PipelineOp;

std::string refusal_of(const PipelineSchedule& schedule, int buffers = 2) {
  try {
    check_pipeline_schedule(schedule, {.buffers = buffers});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

/// Two ranks and two micro-batches, one forward and one backward.
PipelineSchedule small_schedule() {
  return one_forward_one_backward_schedule(2, 2);
}

TEST(CheckPipelineSchedule, NamesAMicroBatchThatIsLost) {
  auto schedule = small_schedule();
  std::erase(schedule.actions[1], PipelineAction{Op::kForward, 1, 1});
  EXPECT_THAT(refusal_of(schedule), HasSubstr("the schedule '1f1b' cannot run: forward of stage 1 for "
                                              "micro-batch 1 is missing"));
  schedule = small_schedule();
  std::erase(schedule.actions[0], PipelineAction{Op::kBackward, 0, 1});
  EXPECT_THAT(refusal_of(schedule), HasSubstr("backward of stage 0 for micro-batch 1 is missing"));
  schedule = small_schedule();
  std::erase(schedule.actions[1], PipelineAction{Op::kSendGradient, 1, 0});
  EXPECT_THAT(refusal_of(schedule),
              HasSubstr("sending the gradient of stage 1 for micro-batch 0 is missing"));
}

TEST(CheckPipelineSchedule, NamesHalvesThatAreMissingOrTooMany) {
  auto schedule = zero_bubble_schedule(2, 2);
  std::erase(schedule.actions[0], PipelineAction{Op::kBackwardWeights, 0, 1});
  EXPECT_THAT(refusal_of(schedule),
              HasSubstr("backward for the weights of stage 0 for micro-batch 1 is missing"));
  schedule = zero_bubble_schedule(2, 2);
  schedule.actions[0].push_back({Op::kBackward, 0, 1});
  EXPECT_THAT(refusal_of(schedule),
              HasSubstr("backward of stage 0 for micro-batch 1 stands there as a whole and in halves"));
}

TEST(CheckPipelineSchedule, NamesWhatStandsThereTwiceOrOnAnotherRank) {
  auto schedule = small_schedule();
  schedule.actions[0].push_back({Op::kForward, 0, 1});
  EXPECT_THAT(refusal_of(schedule), HasSubstr("forward of stage 0 for micro-batch 1 stands there twice"));
  schedule = small_schedule();
  std::swap(schedule.actions[0], schedule.actions[1]);
  EXPECT_THAT(refusal_of(schedule), HasSubstr("stands on rank 0, but the stage is on rank 1"));
  schedule = small_schedule();
  schedule.actions[0].push_back({Op::kForward, 2, 0});
  EXPECT_THAT(refusal_of(schedule),
              HasSubstr("forward of stage 2 for micro-batch 0 on rank 0 is not one of 2 stages"));
  schedule = small_schedule();
  schedule.rank_of_stage[1] = 2;
  EXPECT_THAT(refusal_of(schedule), HasSubstr("stage 1 is on rank 2, but there are 2 ranks"));
}

TEST(CheckPipelineSchedule, NamesAnOrderInWhichAnInputIsMissing) {
  auto schedule = small_schedule();
  ASSERT_EQ(schedule.actions[1][0], (PipelineAction{Op::kReceiveActivation, 1, 0}));
  std::swap(schedule.actions[1][0], schedule.actions[1][1]);
  EXPECT_THAT(refusal_of(schedule), HasSubstr("forward of stage 1 for micro-batch 0 stands before receiving "
                                              "the activation of stage 1 for micro-batch 0 on rank 1"));
}

TEST(CheckPipelineSchedule, NamesTheCircleOfADeadlock) {
  // Rank 0 wants the gradient of the first micro-batch before it sends the second, which rank 1 wants first.
  const PipelineSchedule schedule = with_transfers(
      {"own",
       2,
       {0, 1},
       {{{Op::kForward, 0, 0}, {Op::kBackward, 0, 0}, {Op::kForward, 0, 1}, {Op::kBackward, 0, 1}},
        {{Op::kForward, 1, 0}, {Op::kForward, 1, 1}, {Op::kBackward, 1, 0}, {Op::kBackward, 1, 1}}}});
  EXPECT_THAT(
      refusal_of(schedule),
      HasSubstr("ranks wait for each other in a circle: rank 0 for rank 1 (receiving the gradient of stage 0 "
                "for micro-batch 0), rank 1 for rank 0 (receiving the activation of stage 1 for "
                "micro-batch 1)"));
}

TEST(CheckPipelineSchedule, NamesBuffersThatAreFullInADeadlock) {
  // Rank 0 sends all four micro-batches to rank 1 before it takes the first one back.
  PipelineSchedule schedule{"own", 4, {0, 1, 0}, {{}, {}}};
  for (const int stage : {0, 1, 2}) {
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch)
      schedule.actions[static_cast<size_t>(stage % 2)].push_back({Op::kForward, stage, micro_batch});
  }
  schedule = with_transfers(schedule);
  EXPECT_THAT(
      refusal_of(schedule, 1),
      HasSubstr("rank 0 for rank 1 (sending the activation of stage 0 for micro-batch 3, as 1 wait there "
                "already), rank 1 for rank 0 (sending the activation of stage 1 for micro-batch 1, as 1 "
                "wait there already)"));
  EXPECT_EQ(refusal_of(schedule, 2), "accepted");
}

TEST(CheckPipelineSchedule, NamesMicroBatchesThatComeInAnotherOrder) {
  auto schedule = gpipe_schedule(2, 2);
  // Rank 1 takes the second micro-batch first.
  schedule.actions[1] = {{Op::kReceiveActivation, 1, 1}, {Op::kForward, 1, 1},
                         {Op::kReceiveActivation, 1, 0}, {Op::kForward, 1, 0},
                         {Op::kBackward, 1, 0},          {Op::kSendGradient, 1, 0},
                         {Op::kBackward, 1, 1},          {Op::kSendGradient, 1, 1}};
  EXPECT_THAT(refusal_of(schedule),
              HasSubstr("receiving the activation of stage 1 for micro-batch 1 comes next "
                        "on rank 1, but rank 0 has sent that of micro-batch 0 before"));
}

TEST(CheckPipelineSchedule, RefusesTransfersWithinARankAndGradientsWithoutBackward) {
  auto schedule = forward_schedule({0, 0}, 1);
  schedule.actions[0].push_back({Op::kSendActivation, 0, 0});
  EXPECT_THAT(refusal_of(schedule), HasSubstr("no other rank has the stage at the other end"));
  schedule = forward_schedule({0, 1}, 1);
  schedule.actions[1].push_back({Op::kSendGradient, 1, 0});
  EXPECT_THAT(refusal_of(schedule), HasSubstr("but no stage goes backward"));
}

TEST(CheckPipelineSchedule, RefusesNothingAndNoBuffers) {
  EXPECT_THAT(refusal_of({}), HasSubstr("expected stages and micro-batches, but got 0 and 0"));
  EXPECT_THAT(refusal_of(small_schedule(), 0), HasSubstr("expected at least 1 buffer, but got 0"));
}

}  // namespace
}  // namespace lockstep
