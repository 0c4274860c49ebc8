#include "lockstep/models/simple_cnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

/// The network written with ATen alone, in the order of its description: ReLU before pooling, NCHW.
torch::Tensor plain_forward(const torch::nn::Module& model, const torch::Tensor& images) {
  const auto parameters = model.named_parameters();
  auto values =
      torch::conv2d(images, parameters["convolution.weight"].contiguous(), parameters["convolution.bias"]);
  values = torch::flatten(torch::max_pool2d(torch::relu(values), 2), 1);
  values = torch::relu(torch::linear(values, parameters["dense.weight"], parameters["dense.bias"]));
  return torch::linear(values, parameters["classifier.weight"], parameters["classifier.bias"]);
}

TEST(SimpleCnnTest, HasTheParameterCountOfItsDescription) {
  int64_t count = 0;
  for (const auto& parameter : SimpleCnn()->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 693962);
}

TEST(SimpleCnnTest, EqualsThePlainNetworkInValuesAndGradients) {
  for (const int64_t image_size : {28, 33}) {
    for (const int64_t channels : {1, 3}) {
      SimpleCnn model({.num_classes = 7, .in_channels = channels, .image_size = image_size});
      model->to(torch::kFloat64);
      const auto images = torch::randn({5, channels, image_size, image_size}, torch::kFloat64);
      const auto weights = torch::randn({5, 7}, torch::kFloat64);
      const auto logits = model->forward(images);
      const auto expected = plain_forward(*model, images);
      EXPECT_TRUE(torch::allclose(logits, expected, 0, 1e-12));
      const auto gradients = torch::autograd::grad({(logits * weights).sum()}, model->parameters());
      const auto expected_gradients =
          torch::autograd::grad({(expected * weights).sum()}, model->parameters());
      for (size_t index = 0; index < gradients.size(); ++index) {
        EXPECT_TRUE(torch::allclose(gradients[index], expected_gradients[index], 0, 1e-12)) << index;
      }
    }
  }
}

TEST(SimpleCnnTest, AnEmptyShardGivesZeroGradients) {
  SimpleCnn model;
  const auto logits = model->forward(torch::empty({0, 1, 28, 28}));
  EXPECT_EQ(logits.sizes(), torch::IntArrayRef({0, 10}));
  logits.sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().abs().max().item<float>(), 0) << item.key();
  }
}

TEST(SimpleCnnTest, OneExampleGivesTheRowOfABatch) {
  SimpleCnn model;
  torch::NoGradGuard no_grad;
  const auto images = torch::randn({4, 1, 28, 28});
  EXPECT_TRUE(
      torch::allclose(model->forward(images.slice(0, 2, 3))[0], model->forward(images)[2], 1e-5, 1e-6));
}

TEST(SimpleCnnTest, CloneIsDeepAndComputesTheSame) {
  SimpleCnn model;
  SimpleCnn clone(std::dynamic_pointer_cast<SimpleCnnImpl>(model->clone()));
  const auto images = torch::randn({4, 1, 28, 28});
  const auto logits = model->forward(images);
  EXPECT_TRUE(torch::equal(clone->forward(images), logits));
  torch::NoGradGuard no_grad;
  for (auto& parameter : clone->parameters()) parameter.zero_();
  EXPECT_EQ(clone->forward(images).abs().max().item<float>(), 0);
  EXPECT_TRUE(torch::equal(model->forward(images), logits));
}

TEST(SimpleCnnTest, RefusesOptionsAndImagesByName) {
  const auto message = [](const SimpleCnnOptions& options) -> std::string {
    try {
      SimpleCnn model(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message({.num_classes = 0}), HasSubstr("num_classes to be at least 1, but got 0"));
  EXPECT_THAT(message({.in_channels = 0}), HasSubstr("in_channels to be at least 1, but got 0"));
  EXPECT_THAT(message({.image_size = 3}), HasSubstr("image_size to be at least 4, but got 3"));
  SimpleCnn model;
  EXPECT_THROW(model->forward(torch::empty({2, 1, 32, 32})), std::invalid_argument);
  EXPECT_THROW(model->forward(torch::empty({2, 3, 28, 28})), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
