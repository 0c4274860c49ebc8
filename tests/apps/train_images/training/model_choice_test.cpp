#include "lockstep/apps/train_images/training/model_choice.h"

#include <gtest/gtest.h>

#include "lockstep/strategies/nn/sync_batch_norm.h"

namespace lockstep::apps {
namespace {

template <typename Module, typename Model>
int count_modules(const Model& model) {
  int count = 0;
  for (const auto& module : model->modules()) count += module->template as<Module>() == nullptr ? 0 : 1;
  return count;
}

TEST(ModelChoice, TakesSizeAndChannelsOfTheImages) {
  const auto options = simple_cnn_options({.image_size = 40}, 7);
  EXPECT_EQ(options.num_classes, 7);
  EXPECT_EQ(options.in_channels, 1);
  EXPECT_EQ(options.image_size, 40);
  SimpleCnn model(options);
  EXPECT_EQ(model->forward(torch::zeros({2, 1, 40, 40})).sizes(), (std::vector<int64_t>{2, 7}));
}

TEST(ModelChoice, TakesTheHeadAndTheNormalisation) {
  TrainOptions options{.model = ModelKind::kMobileNetV2, .head = HeadKind::kFlattenedDense, .image_size = 64};
  const auto plain = mobilenet_v2_options(options, 7);
  EXPECT_EQ(plain.in_channels, 3);
  EXPECT_EQ(plain.head, MobileNetV2Head::kFlattenedDense);
  EXPECT_EQ(count_modules<SyncBatchNormImpl>(MobileNetV2(plain)), 0);
  options.head = HeadKind::kGlobalAverage;
  options.sync_batch_norm = true;
  const auto synchronised = mobilenet_v2_options(options, 7);
  EXPECT_EQ(synchronised.head, MobileNetV2Head::kGlobalAverage);
  // One after each of torchvision's 52 convolutions.
  EXPECT_EQ(count_modules<SyncBatchNormImpl>(MobileNetV2(synchronised)), 52);
}

}  // namespace
}  // namespace lockstep::apps
