#include "lockstep/apps/train_images/training/image_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainOptions image_options(ModelKind model, const std::string& schedule = "1f1b",
                           int64_t stages_per_rank = 2) {
  TrainOptions options;
  options.model = model;
  options.pipeline_schedule = schedule;
  options.stages_per_rank = stages_per_rank;
  return options;
}

void check_on(const std::string& mesh, const TrainOptions& options) {
  const Mesh parsed = parse_mesh(mesh);
  const MirroredStrategy strategy(cpu_devices(parsed.size()), {.mesh = parsed});
  check_image_stages(strategy, options);
}

std::string refusal_on(const std::string& mesh, const TrainOptions& options) {
  return message_of<UsageError>([&] { check_on(mesh, options); });
}

TEST(CheckImageStagesTest, MoreStagesThanBlocksAreRefusedWithFlagsThatWouldDo) {
  const auto cnn = ModelKind::kSimpleCnn;
  EXPECT_EQ(refusal_on("pipeline=8", image_options(cnn)),
            "--mesh pipeline=8: expected at most 3 stages of --model simple_cnn, but got 8 with "
            "--pipeline-schedule 1f1b: at most 3 ranks along the axis pipeline would do");
  EXPECT_THAT(refusal_on("pipeline=2", image_options(cnn, "zb-v")),
              HasSubstr("but got 4 with --pipeline-schedule zb-v: --pipeline-schedule 1f1b would do"));
  EXPECT_THAT(refusal_on("pipeline=4", image_options(cnn, "zb-v")),
              HasSubstr("--pipeline-schedule 1f1b with at most 3 ranks along the axis pipeline would do"));
  const auto mobilenet = ModelKind::kMobileNetV2;
  EXPECT_THAT(refusal_on("pipeline=4", image_options(mobilenet, "interleaved", 6)),
              HasSubstr("expected at most 20 stages of --model mobilenet_v2, but got 24 with "
                        "--pipeline-schedule interleaved: at most 3 ranks along the axis pipeline would do"));
  EXPECT_THAT(refusal_on("pipeline=2", image_options(mobilenet, "interleaved", 11)),
              HasSubstr("but got 22 with --pipeline-schedule interleaved: --stages-per-rank 10 would do"));
}

/// Each flag that a refusal proposes is accepted.
TEST(CheckImageStagesTest, FlagsThatWouldDoAreAccepted) {
  const auto cnn = ModelKind::kSimpleCnn, mobilenet = ModelKind::kMobileNetV2;
  EXPECT_NO_THROW(check_on("pipeline=3", image_options(cnn)));
  EXPECT_NO_THROW(check_on("pipeline=2", image_options(cnn)));
  EXPECT_NO_THROW(check_on("pipeline=3", image_options(mobilenet, "interleaved", 6)));
  EXPECT_NO_THROW(check_on("pipeline=2", image_options(mobilenet, "interleaved", 10)));
  EXPECT_NO_THROW(check_on("data=2", image_options(cnn)));
}

TEST(CheckImageStagesTest, RanksTakeTurnsOfEquallyManyMicroBatches) {
  auto options = image_options(ModelKind::kMobileNetV2, "interleaved");
  options.accumulate_steps = 5;
  EXPECT_EQ(refusal_on("data=2,pipeline=2", options),
            "--accumulate-steps 5: expected a number that the 2 ranks along the axis pipeline of --mesh "
            "data=2,pipeline=2 divide, with --pipeline-schedule interleaved: 4 or 6 would do");
  options.accumulate_steps = 1;
  EXPECT_THAT(refusal_on("pipeline=2", options), AllOf(HasSubstr(": 2 would do"), Not(HasSubstr("0 or"))));
  options.accumulate_steps = 6;
  EXPECT_NO_THROW(check_on("data=2,pipeline=2", options));
  options.accumulate_steps = 0;  // by default, as many as do
  EXPECT_NO_THROW(check_on("pipeline=2", options));
  options.pipeline_schedule = "1f1b";
  options.accumulate_steps = 5;
  EXPECT_NO_THROW(check_on("pipeline=2", options));
}

TEST(CheckImageStagesTest, OtherAxesAlongWhichModelsAreCutAreRefusedWithTheReason) {
  const auto options = image_options(ModelKind::kMobileNetV2);
  for (const char* mesh : {"tensor=2", "pipeline=2,tensor=2"}) {
    EXPECT_THAT(
        refusal_on(mesh, options),
        AllOf(HasSubstr(std::string("--mesh ") + mesh +
                        ": expected pipeline as the only axis along which models of images are cut, as "
                        "ranks cannot share a convolution (--mesh pipeline=N cuts between layers, and "
                        "--sharding 3 divides parameters), but got tensor")));
  }
}

}  // namespace
}  // namespace lockstep::apps
