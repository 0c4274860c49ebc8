#include "lockstep/models/mobilenet_v2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/tests/models/state_of.h"

namespace lockstep {
namespace {

// The model has many small operators: on a busy machine, waiting for a second thread takes longer than the
// work.
class OneThread : public testing::Environment {
 public:
  void SetUp() override { torch::set_num_threads(1); }
};

const auto* const kOneThread = testing::AddGlobalTestEnvironment(new OneThread);

int64_t trainable_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters())
    count += parameter.requires_grad() ? parameter.numel() : 0;
  return count;
}

std::map<std::string, torch::Tensor> copies_of_buffers(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> copies;
  for (const auto& item : module.named_buffers()) copies.emplace(item.key(), item.value().clone());
  return copies;
}

TEST(MobileNetV2Test, HasTheParameterCountsOfTorchvisionAndOfKeras) {
  EXPECT_EQ(trainable_parameters(*MobileNetV2()), 3504872);
  EXPECT_EQ(trainable_parameters(*MobileNetV2(MobileNetV2Options{.num_classes = 10})), 2236682);
  for (const int64_t image_size : {64, 96}) {
    MobileNetV2 model(MobileNetV2Options{
        .num_classes = 10, .head = MobileNetV2Head::kFlattenedDense, .image_size = image_size});
    EXPECT_EQ(trainable_parameters(*model), 2884874);
  }
}

TEST(MobileNetV2Test, StoresConvolutionWeightsChannelsLast) {
  MobileNetV2 model;
  for (const auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) {
      EXPECT_TRUE(parameter.is_contiguous(torch::MemoryFormat::ChannelsLast));
    }
  }
}

TEST(MobileNetV2Test, StartsWithTheDistributionsOfTorchvision) {
  torch::manual_seed(1);
  MobileNetV2 model({.num_classes = 1000});
  const auto state = state_of(*model);
  const auto deviation = [&](const char* name) { return state.at(name).std().item<double>(); };
  // Kaiming normal over the fan-out: sqrt(2 / (out_channels * kernel area)); 960 * 9 and 1280 * 320 samples.
  EXPECT_NEAR(deviation("features.16.conv.1.0.weight"), std::sqrt(2.0 / (960 * 9)), 0.001);
  EXPECT_NEAR(deviation("features.18.0.weight"), std::sqrt(2.0 / 1280), 0.0005);
  EXPECT_NEAR(deviation("classifier.1.weight"), 0.01, 0.0001);
  EXPECT_EQ(state.at("classifier.1.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(state.at("features.18.1.weight").min().item<double>(), 1);
  EXPECT_EQ(state.at("features.18.1.bias").abs().max().item<double>(), 0);
}

TEST(MobileNetV2Test, FlattenedDenseHeadPoolsFlattensAndAppliesTwoDenseLayers) {
  for (const int64_t image_size : {64, 96, 128}) {
    MobileNetV2 model(
        {.num_classes = 10, .head = MobileNetV2Head::kFlattenedDense, .image_size = image_size});
    model->eval();
    torch::NoGradGuard no_grad;
    const auto images = torch::randn({3, 3, image_size, image_size});
    const auto state = state_of(*model);
    auto features = model->named_children()["features"]->as<torch::nn::Sequential>()->forward(images);
    // Average pooling 2x2 without at::avg_pool2d: complete 2x2 blocks without an odd last row or column.
    const int64_t pooled = features.size(2) / 2;
    features = features.slice(2, 0, 2 * pooled).slice(3, 0, 2 * pooled).contiguous();
    features =
        features.view({3, 1280, pooled, 2, pooled, 2}).mean({3, 5}).reshape({3, 1280 * pooled * pooled});
    const auto dense =
        torch::addmm(state.at("classifier.0.bias"), features, state.at("classifier.0.weight").t());
    const auto logits =
        torch::addmm(state.at("classifier.1.bias"), dense, state.at("classifier.1.weight").t());
    EXPECT_EQ(dense.size(1), 512);
    EXPECT_TRUE(torch::allclose(model->forward(images), logits, 1e-5, 1e-6)) << image_size;
  }
}

TEST(MobileNetV2Test, AnEmptyShardGivesZeroGradientsAndLeavesStatisticsUntouched) {
  for (const auto head : {MobileNetV2Head::kGlobalAverage, MobileNetV2Head::kFlattenedDense}) {
    MobileNetV2 model({.num_classes = 10, .head = head});
    model->forward(torch::randn({2, 3, 64, 64}));
    const auto before = copies_of_buffers(*model);
    const auto logits = model->forward(torch::empty({0, 3, 64, 64}));
    EXPECT_EQ(logits.sizes(), torch::IntArrayRef({0, 10}));
    logits.sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_EQ(item.value().grad().abs().max().item<float>(), 0) << item.key();
    }
    for (const auto& item : model->named_buffers()) {
      EXPECT_TRUE(torch::equal(item.value(), before.at(item.key()))) << item.key();
    }
    model->eval();
    EXPECT_EQ(model->forward(torch::empty({0, 3, 64, 64})).sizes(), torch::IntArrayRef({0, 10}));
  }
}

TEST(MobileNetV2Test, TrainsOnOneExampleWhereFeatureMapsHaveSeveralPixels) {
  MobileNetV2 model({.num_classes = 10});
  const auto logits = model->forward(torch::randn({1, 3, 33, 33}));
  logits.sum().backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
  }
  EXPECT_ANY_THROW(model->forward(torch::randn({1, 3, 32, 32})));  // one value per channel has no variance
}

TEST(MobileNetV2Test, GradientsHaveTheLayoutOfTheirParameters) {
  MobileNetV2 model({.num_classes = 10});
  model->forward(torch::randn({2, 3, 64, 64})).sum().backward();
  for (const auto& item : model->named_parameters()) {
    if (item.value().dim() != 4) continue;
    EXPECT_TRUE(item.value().grad().is_contiguous(torch::MemoryFormat::ChannelsLast)) << item.key();
  }
}

TEST(MobileNetV2Test, CloneIsDeepAndComputesTheSame) {
  for (const auto head : {MobileNetV2Head::kGlobalAverage, MobileNetV2Head::kFlattenedDense}) {
    MobileNetV2 model({.num_classes = 10, .dropout = 0, .head = head});
    const auto images = torch::randn({2, 3, 64, 64});
    model->forward(images);
    MobileNetV2 clone(std::dynamic_pointer_cast<MobileNetV2Impl>(model->clone()));
    EXPECT_TRUE(torch::equal(clone->forward(images), model->forward(images)));
    const auto original_state = state_of(*model);
    for (const auto& [name, tensor] : state_of(*clone)) {
      EXPECT_FALSE(tensor.is_alias_of(original_state.at(name))) << name;
      EXPECT_EQ(tensor.strides(), original_state.at(name).strides()) << name;
      EXPECT_TRUE(torch::equal(tensor, original_state.at(name))) << name;
    }
    // The clone computes with the parameters it registered.
    torch::NoGradGuard no_grad;
    for (auto& parameter : clone->parameters()) parameter.zero_();
    EXPECT_EQ(clone->forward(images).abs().max().item<float>(), 0);
  }
}

TEST(MobileNetV2Test, SavedAndLoadedComputesTheSame) {
  MobileNetV2 model({.num_classes = 10});
  std::stringstream stream;
  torch::save(model, stream);
  MobileNetV2 loaded({.num_classes = 10});
  torch::load(loaded, stream);
  model->eval();
  loaded->eval();
  const auto images = torch::randn({2, 3, 64, 64});
  EXPECT_TRUE(torch::equal(loaded->forward(images), model->forward(images)));
}

/// A custom normalisation layer with other parameter names.
struct ScaleImpl : public torch::nn::Cloneable<ScaleImpl> {
  explicit ScaleImpl(int64_t num_features) : channels(num_features) { reset(); }
  void reset() override { scale = register_parameter("scale", torch::full({channels, 1, 1}, 2.0)); }
  torch::Tensor forward(const torch::Tensor& input) { return input * scale; }

  int64_t channels;
  torch::Tensor scale;
};
TORCH_MODULE(Scale);

TEST(MobileNetV2Test, TakesAnotherNormalizationInEachOfItsPlaces) {
  std::vector<int64_t> asked;
  MobileNetV2 model(MobileNetV2Options{.num_classes = 10, .dropout = 0, .norm_layer = [&](int64_t channels) {
                                         asked.push_back(channels);
                                         return torch::nn::AnyModule(Scale(channels));
                                       }});
  // The same number, widths and module names as BatchNorm's weights.
  std::map<std::string, int64_t> expected;
  for (const auto& [name, tensor] : state_of(*MobileNetV2(MobileNetV2Options{.num_classes = 10}))) {
    const auto norm = name.substr(0, name.rfind('.'));
    if (name == norm + ".running_mean") expected[norm + ".scale"] = tensor.size(0);
  }
  std::map<std::string, int64_t> given;
  for (const auto& item : model->named_parameters()) {
    if (item.key().ends_with(".scale")) given[item.key()] = item.value().size(0);
  }
  EXPECT_EQ(given, expected);
  EXPECT_EQ(asked.size(), 52U);

  const auto images = torch::randn({2, 3, 33, 33});
  MobileNetV2 clone(std::dynamic_pointer_cast<MobileNetV2Impl>(model->clone()));
  EXPECT_TRUE(torch::equal(clone->forward(images), model->forward(images)));
  // The module computes with the parameters it registered.
  const auto before = clone->forward(images);
  torch::NoGradGuard no_grad;
  clone->named_parameters()["features.18.1.scale"].zero_();
  EXPECT_FALSE(torch::equal(clone->forward(images), before));
}

TEST(MobileNetV2Test, TakesGreyImages) {
  MobileNetV2 model({.num_classes = 10, .in_channels = 1});
  EXPECT_EQ(model->forward(torch::randn({2, 1, 40, 48})).sizes(), torch::IntArrayRef({2, 10}));
}

TEST(MobileNetV2Test, RefusesOptionsAndImagesByName) {
  const auto message = [](const MobileNetV2Options& options) -> std::string {
    try {
      MobileNetV2 model(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message({.num_classes = 0}), HasSubstr("num_classes to be positive, but got 0"));
  EXPECT_THAT(message({.width_multiplier = -1}), HasSubstr("width_multiplier to be positive, but got -1"));
  EXPECT_THAT(message({.dropout = 1}), HasSubstr("dropout to be in [0, 1), but got 1"));
  EXPECT_THAT(message({.in_channels = 0}), HasSubstr("in_channels to be positive, but got 0"));
  EXPECT_THAT(message({.head = MobileNetV2Head::kFlattenedDense, .image_size = 32}),
              HasSubstr("image_size to be at least 33 for the head kFlattenedDense, but got 32"));
  EXPECT_THAT(message({.norm_layer = [](int64_t) { return torch::nn::AnyModule(); }}),
              HasSubstr("[norm_layer] expected it to make a module, but got an empty one"));
  MobileNetV2 model;
  EXPECT_THROW(model->forward(torch::empty({2, 1, 64, 64})), std::invalid_argument);
  EXPECT_THROW(model->forward(torch::empty({3, 64, 64})), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
