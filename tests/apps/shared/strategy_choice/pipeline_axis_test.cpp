#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

PipelineChoice schedule_named(const std::string& name, int64_t stages_per_rank = 2) {
  return {.pipeline_schedule = name, .stages_per_rank = stages_per_rank};
}

TEST(PipelineAxisTest, RanksAlongTheAxisPipelineHaveStages) {
  EXPECT_EQ(axis_of_pipeline(parse_mesh("data=2,pipeline=2")), "pipeline");
  for (const char* mesh : {"data=4", "pipeline=1", "data=2,pipeline=2:data", "tensor=2"})
    EXPECT_EQ(axis_of_pipeline(parse_mesh(mesh)), "") << mesh;
  EXPECT_EQ(ranks_along(parse_mesh("data=2,pipeline=3"), "pipeline"), 3);
  EXPECT_EQ(ranks_along(parse_mesh("data=2"), "pipeline"), 1);
}

TEST(PipelineAxisTest, SchedulesDecideTheStages) {
  const Mesh mesh = parse_mesh("data=2,pipeline=3");
  for (const char* name : {"gpipe", "1f1b", "zb-h1"})
    EXPECT_EQ(num_stages(mesh, schedule_named(name)), 3) << name;
  EXPECT_EQ(num_stages(mesh, schedule_named("zb-v")), 6);
  EXPECT_EQ(num_stages(mesh, schedule_named("interleaved", 4)), 12);
}

TEST(PipelineAxisTest, ThereAreFourTimesAsManyMicroBatchesAsRanksUnlessThereAreFewerExamples) {
  const Mesh mesh = parse_mesh("pipeline=3");
  const auto count = [&](const std::string& name, int64_t largest, int64_t given = 0) {
    return micro_batches_of_stages(mesh, schedule_named(name), {.largest = largest, .micro_batches = given});
  };
  EXPECT_EQ(count("1f1b", 100), 12);
  EXPECT_EQ(count("1f1b", 7), 7);
  EXPECT_EQ(count("1f1b", 0), 1);
  EXPECT_EQ(count("1f1b", 7, 20), 20);
  EXPECT_EQ(count("1f1b", 100, 1), 1);
  EXPECT_EQ(count("interleaved", 100), 12);
  EXPECT_EQ(count("interleaved", 7), 9);
  EXPECT_EQ(count("interleaved", 100, 4), 6);
  const auto options = pipeline_options(schedule_named("interleaved", 4), 6, {1, 2, 3});
  EXPECT_EQ(options.schedule, "interleaved");
  EXPECT_EQ(options.micro_batches, 6);
  EXPECT_EQ(options.stages_per_rank, 4);
  EXPECT_EQ(options.costs, (std::vector<double>{1, 2, 3}));
}

TEST(PipelineAxisTest, MistakesAreNamed) {
  EXPECT_THAT(
      message_of<UsageError>(
          [] { refuse_schedule_without_stages(parse_mesh("data=2"), schedule_named("gpipe")); }),
      HasSubstr(
          "--pipeline-schedule gpipe: expected a --mesh with several ranks along the axis pipeline, but "
          "got data=2"));
  EXPECT_THAT(message_of<UsageError>([] {
                refuse_schedule_without_stages(parse_mesh("data=2"), {.pipeline_cut = "time"});
              }),
              HasSubstr("--pipeline-cut time: expected a --mesh with several ranks along the axis pipeline"));
  EXPECT_NO_THROW(refuse_schedule_without_stages(parse_mesh("data=2"), {}));
  EXPECT_THAT(
      message_of<UsageError>(
          [] { refuse_with_stages(parse_mesh("pipeline=2"), "--cuda-graph", "no CUDA graph"); }),
      HasSubstr(
          "--cuda-graph: expected no CUDA graph with the axis pipeline of --mesh pipeline=2, whose ranks "
          "have stages of the model"));
  EXPECT_NO_THROW(refuse_other_axes(parse_mesh("a=2:model,b=1:model"), AxisRole::kModel, {"a"}, "a alone"));
  EXPECT_THAT(message_of<UsageError>([] {
                refuse_other_axes(parse_mesh("a=2:model,b=2:model"), AxisRole::kModel, {"a"}, "a alone");
              }),
              HasSubstr("--mesh a=2:model,b=2:model: expected a alone, but got b"));
}

}  // namespace
}  // namespace lockstep::apps
