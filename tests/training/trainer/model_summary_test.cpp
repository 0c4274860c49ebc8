#include "lockstep/training/trainer/model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/strategies/sharding/sharded_module.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(ModelSummary, HasALineForEachModuleAndTheTotals) {
  SimpleCnn model(SimpleCnnOptions{.num_classes = 10, .in_channels = 1, .image_size = 28});
  model->named_parameters()["dense.weight"].set_requires_grad(false);
  EXPECT_EQ(model_summary(*model),
            "module       kind       shapes                              parameters\n"
            "(model)      SimpleCnn                                         693,962\n"
            "convolution  Conv2d     weight 32x1x3x3, bias 32                   320\n"
            "dense        Linear     weight 128x5408 (frozen), bias 128     692,352\n"
            "classifier   Linear     weight 10x128, bias 10                   1,290\n"
            "693,962 parameters, 1,738 of them trained; 2.6 MiB of parameters, 0 bytes of buffers\n");
}

TEST(ModelSummary, ShowsTheWholeParametersOfUnitsAndTheBytesOfTheirShards) {
  const SimpleCnn model(SimpleCnnOptions{}, [](const ModelPart& part) {
    return WrappedPart{std::make_shared<ShardedModule>(part.module, UnitOptions{.index = 1, .size = 2})};
  });
  EXPECT_EQ(count_parameters(*model), 693'962);
  const auto text = model_summary(*model);
  EXPECT_THAT(text, HasSubstr("weight 32x1x3x3, bias 32          320\n"));
  EXPECT_THAT(text, HasSubstr("693,962 parameters, 693,962 of them trained; 1.3 MiB of parameters"));
}

// torchvision's mobilenet_v2 has 3,504,872 parameters and 34,112 statistics of BatchNorm, and 52 counters.
TEST(ModelSummary, CountsWhatLiesDeeperWithItsParent) {
  MobileNetV2 model(MobileNetV2Options{.num_classes = 1000});
  const auto text = model_summary(*model, {.depth = 1});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 1 + 2 + 1);
  EXPECT_THAT(text, HasSubstr("2,223,872\n"));  // features
  EXPECT_THAT(
      text, HasSubstr("3,504,872 parameters, 3,504,872 of them trained; 13.4 MiB of parameters, 133.7 KiB of "
                      "buffers\n"));
}

}  // namespace
}  // namespace lockstep
