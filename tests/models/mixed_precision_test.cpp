// The models under autocast on a CPU: they train, and stay near their results in float32.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <string>
#include <tuple>

#include "lockstep/models/convolution.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/autocast.h"

namespace lockstep {
namespace {

// Without dropout, whose masks are drawn in the type of its input.
MobileNetV2 make_mobilenet() {
  return MobileNetV2(MobileNetV2Options{.in_channels = 1, .dropout = 0});
}

SimpleCnn make_simple_cnn() {
  return SimpleCnn(SimpleCnnOptions{});
}

template <typename Model>
std::vector<torch::Tensor> gradients_of(Model& model, const torch::Tensor& images,
                                        const torch::Tensor& target, at::ScalarType dtype,
                                        torch::Tensor& logits) {
  torch::Tensor losses;
  {
    const AutocastGuard cast(torch::kCPU, dtype);
    logits = model->forward(images);
    losses = torch::cross_entropy_loss(logits, target, {}, at::Reduction::None);
  }
  // Scaled, since float16 loses the smallest gradients.
  const auto scaled = torch::autograd::grad({losses.sum() * 256}, model->parameters());
  std::vector<torch::Tensor> gradients;
  for (const auto& gradient : scaled) gradients.push_back(gradient / 256);
  return gradients;
}

template <typename Model>
void expect_near_float32(Model model, at::ScalarType dtype, int64_t image_size) {
  const auto images = torch::randn({8, 1, image_size, image_size});
  const auto target = torch::randint(0, 10, {8});
  torch::Tensor exact_logits, logits;
  const auto exact = gradients_of(model, images, target, torch::kFloat, exact_logits);
  const auto given = gradients_of(model, images, target, dtype, logits);
  EXPECT_EQ(exact_logits.scalar_type(), torch::kFloat);
  EXPECT_EQ(logits.scalar_type(), dtype);
  EXPECT_FALSE(torch::equal(logits.to(torch::kFloat), exact_logits));
  std::vector<torch::Tensor> flat_given, flat_exact;
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(given[i].scalar_type(), torch::kFloat);
    flat_given.push_back(given[i].flatten());
    flat_exact.push_back(exact[i].flatten());
  }
  const auto a = torch::cat(flat_given), b = torch::cat(flat_exact);
  const double cosine = (a.dot(b) / (a.norm() * b.norm())).template item<double>();
  EXPECT_GT(cosine, dtype == torch::kHalf ? 0.999 : 0.97);
}

class MixedPrecision : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { torch::manual_seed(11); }
};

TEST_P(MixedPrecision, SimpleCnnsGradientsPointWhereTheyDoInFloat32) {
  expect_near_float32(make_simple_cnn(), GetParam(), 28);
}

TEST_P(MixedPrecision, MobileNetV2sGradientsPointWhereTheyDoInFloat32) {
  expect_near_float32(make_mobilenet(), GetParam(), 64);
}

TEST_P(MixedPrecision, ModelsTrainOnAnEmptyShard) {
  const auto expect_zeros = [](auto model, int64_t image_size) {
    torch::Tensor logits;
    const auto gradients = gradients_of(model, torch::ones({0, 1, image_size, image_size}),
                                        torch::zeros({0}, torch::kLong), GetParam(), logits);
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{0, 10}));
    for (const auto& gradient : gradients) EXPECT_EQ(gradient.abs().sum().template item<double>(), 0);
  };
  expect_zeros(make_simple_cnn(), 28);
  expect_zeros(make_mobilenet(), 64);
}

// A convolution of 1x1 is a product here, and a depthwise one over small maps is padded beforehand: both in
// the shorter type, as LibTorch's own convolution would be.
TEST_P(MixedPrecision, ConvolutionsComputeInTheTypeOfLibTorchsOwn) {
  for (const auto& options :
       {ConvolutionOptions{.in_channels = 8, .out_channels = 16},
        ConvolutionOptions{.in_channels = 8, .out_channels = 8, .kernel_size = 3, .groups = 8}}) {
    Convolution convolution(options);
    const auto input = torch::randn({4, 8, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast);
    const AutocastGuard cast(torch::kCPU, GetParam());
    const auto given = convolution->forward(input);
    const auto expected =
        torch::conv2d(input, convolution->weight, {}, 1, options.kernel_size / 2, 1, options.groups);
    EXPECT_EQ(given.scalar_type(), GetParam());
    EXPECT_EQ(expected.scalar_type(), GetParam());
    EXPECT_TRUE(torch::allclose(given.to(torch::kFloat), expected.to(torch::kFloat), 1e-2, 1e-2));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MixedPrecision, testing::Values(torch::kBFloat16, torch::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace lockstep
