#include "lockstep/strategies/pipeline/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr double kNothing = 1e-12;

double bubble_of(const PipelineSchedule& schedule, double forward = 1, double backward = 2) {
  return simulate_pipeline(schedule, uniform_pipeline_times(schedule, forward, backward)).bubble();
}

/// Calls the function for small pipelines of all sizes.
void for_all_sizes(const std::function<void(int ranks, int micro_batches)>& check) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (int micro_batches = 1; micro_batches <= 3 * ranks; ++micro_batches) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) + " micro-batches");
      check(ranks, micro_batches);
    }
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(GpipeSchedule, WaitsAsLongAsItsFormulaSaysAndKeepsAllMicroBatches) {
  for_all_sizes([](int ranks, int micro_batches) {
    const auto schedule = gpipe_schedule(ranks, micro_batches);
    EXPECT_THAT(check_pipeline_schedule(schedule, {.buffers = 1}).most_alive, Each(micro_batches));
    EXPECT_NEAR(bubble_of(schedule), double(ranks - 1) / (micro_batches + ranks - 1), kNothing);
    EXPECT_NEAR(bubble_of(schedule, 3, 1), double(ranks - 1) / (micro_batches + ranks - 1), kNothing);
  });
}

TEST(OneForwardOneBackwardSchedule, WaitsAsLongAsGpipeAndKeepsFewerMicroBatches) {
  for_all_sizes([](int ranks, int micro_batches) {
    const auto schedule = one_forward_one_backward_schedule(ranks, micro_batches);
    const auto alive = check_pipeline_schedule(schedule, {.buffers = 1}).most_alive;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(alive[static_cast<size_t>(rank)], std::min(ranks - rank, micro_batches)) << "rank " << rank;
    EXPECT_NEAR(bubble_of(schedule), double(ranks - 1) / (micro_batches + ranks - 1), kNothing);
  });
}

TEST(InterleavedSchedule, WaitsLessTheMoreStagesARankHas) {
  for (const int ranks : {1, 2, 4}) {
    for (const int stages : {1, 2, 3}) {
      for (const int rounds : {1, 2, 3}) {
        const int micro_batches = rounds * ranks;
        const auto schedule = interleaved_schedule(ranks, stages, micro_batches);
        check_pipeline_schedule(schedule, {.buffers = 1});
        EXPECT_NEAR(bubble_of(schedule), double(ranks - 1) / (stages * micro_batches + ranks - 1), kNothing)
            << ranks << " ranks, " << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(InterleavedSchedule, NamesNumbersOfMicroBatchesThatWouldDo) {
  EXPECT_THAT(error_of([] { interleaved_schedule(4, 2, 6); }), HasSubstr("but got 6: 4 or 8 would do"));
  EXPECT_THAT(error_of([] { interleaved_schedule(4, 2, 3); }), HasSubstr("but got 3: 4 would do"));
}

TEST(ZeroBubbleSchedule, WaitsAThirdAsLongInTheSameMemory) {
  for_all_sizes([](int ranks, int micro_batches) {
    const auto schedule = zero_bubble_schedule(ranks, micro_batches);
    EXPECT_THAT(check_pipeline_schedule(schedule, {.buffers = 1}).most_alive, Each(Le(ranks)));
    if (micro_batches < ranks) return;
    // The first rank computes 3 for each micro-batch, and waits ranks - 1 instead of 3 (ranks - 1).
    EXPECT_NEAR(bubble_of(schedule), double(ranks - 1) / (3 * micro_batches + ranks - 1), kNothing);
  });
}

TEST(ZeroBubbleVSchedule, DoesNotWaitOnceThereAreEnoughMicroBatches) {
  for_all_sizes([](int ranks, int micro_batches) {
    const auto schedule = zero_bubble_v_schedule(ranks, micro_batches);
    EXPECT_THAT(check_pipeline_schedule(schedule, {.buffers = 1}).most_alive, Each(Le(2 * ranks)));
    if (micro_batches >= 2 * ranks - 1) {
      EXPECT_NEAR(bubble_of(schedule), 0, kNothing);
    }
  });
}

TEST(ForwardSchedule, KeepsNothingAndFillsThePipelineOnce) {
  const auto schedule = forward_schedule({0, 1, 2, 2}, 5);
  EXPECT_THAT(check_pipeline_schedule(schedule).most_alive, Each(0));
  PipelineTimes times{{{1, 0, 0}, {1, 0, 0}, {0.5, 0, 0}, {0.5, 0, 0}}};
  EXPECT_NEAR(simulate_pipeline(schedule, times).seconds(), 5 + 2, kNothing);
}

TEST(MakePipelineSchedule, KnowsAllNames) {
  EXPECT_EQ(make_pipeline_schedule("gpipe", 2, 4), gpipe_schedule(2, 4));
  EXPECT_EQ(make_pipeline_schedule("1f1b", 2, 4), one_forward_one_backward_schedule(2, 4));
  EXPECT_EQ(make_pipeline_schedule("interleaved", 2, 4, 3), interleaved_schedule(2, 3, 4));
  EXPECT_EQ(make_pipeline_schedule("zb-h1", 2, 4), zero_bubble_schedule(2, 4));
  EXPECT_EQ(make_pipeline_schedule("zb-v", 2, 4), zero_bubble_v_schedule(2, 4));
  EXPECT_THAT(error_of([] { make_pipeline_schedule("gpip", 2, 4); }),
              HasSubstr("expected gpipe, 1f1b, interleaved, zb-h1 or zb-v, but got 'gpip'"));
}

TEST(MakePipelineSchedule, RefusesFewerThanOneRankOrMicroBatch) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    EXPECT_THAT(error_of([&] { make_pipeline_schedule(name, 0, 4); }),
                HasSubstr("at least 1 rank, but got 0"));
    EXPECT_THAT(error_of([&] { make_pipeline_schedule(name, 2, 0); }),
                HasSubstr("at least 1 micro-batch, but got 0"));
  }
}

TEST(WithTransfers, ConnectsStagesOfDifferentRanksOnly) {
  using Op = PipelineOp;
  const auto schedule = with_transfers({"own",
                                        1,
                                        {0, 1, 1},
                                        {{{Op::kForward, 0, 0}, {Op::kBackward, 0, 0}},
                                         {{Op::kForward, 1, 0},
                                          {Op::kForward, 2, 0},
                                          {Op::kBackward, 2, 0},
                                          {Op::kBackwardInputs, 1, 0},
                                          {Op::kBackwardWeights, 1, 0}}}});
  const std::vector<std::vector<PipelineAction>> expected{{{Op::kForward, 0, 0},
                                                           {Op::kSendActivation, 0, 0},
                                                           {Op::kReceiveGradient, 0, 0},
                                                           {Op::kBackward, 0, 0}},
                                                          {{Op::kReceiveActivation, 1, 0},
                                                           {Op::kForward, 1, 0},
                                                           {Op::kForward, 2, 0},
                                                           {Op::kBackward, 2, 0},
                                                           {Op::kBackwardInputs, 1, 0},
                                                           {Op::kSendGradient, 1, 0},
                                                           {Op::kBackwardWeights, 1, 0}}};
  EXPECT_EQ(schedule.actions, expected);
}

}  // namespace
}  // namespace lockstep
