// Layers: LibTorch's CPU is the oracle, bit for bit.
#include <ATen/autocast_mode.h>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

using TestDeviceLayers = EachTestDevice;
INSTANTIATE_TEST_SUITE_P(Each, TestDeviceLayers, testing::Range(0, TestDevice::kNumTestDevices));

TEST_P(TestDeviceLayers, Convolutions) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{torch::conv2d(in[0], in[1], in[2], 1, 1),
                       torch::conv2d(in[0], in[1], torch::Tensor(), 2),
                       torch::conv2d(in[0].contiguous(at::MemoryFormat::ChannelsLast), in[1], in[2]),
                       torch::conv_transpose2d(in[0], in[1].transpose(0, 1), in[2], 2)};
      },
      {seeded_normal({2, 4, 8, 8}, 1), seeded_normal({4, 4, 3, 3}, 2), seeded_normal({4}, 3)});
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{torch::conv1d(in[0].select(2, 0), in[1].select(2, 0), torch::Tensor(), 1, 1),
                       torch::conv2d(in[0], in[2], torch::Tensor(), 1, 1, 1, /*groups=*/4),
                       torch::conv3d(in[0].unsqueeze(2), in[1].unsqueeze(2))};
      },
      {seeded_normal({2, 4, 8, 8}, 4), seeded_normal({6, 4, 3, 3}, 5), seeded_normal({4, 1, 3, 3}, 6)});
}

TEST_P(TestDeviceLayers, AConvolutionOfNoExamples) {
  expect_same_on_device([](const Tensors& in) { return Tensors{torch::conv2d(in[0], in[1])}; },
                        {torch::zeros({0, 3, 8, 8}), seeded_normal({4, 3, 3, 3}, 7)});
}

TEST_P(TestDeviceLayers, BatchNormWithItsRunningStatistics) {
  for (const bool training : {true, false}) {
    expect_same_with_gradients(
        [&](const Tensors& in) {
          const auto mean = torch::zeros({4}, in[0].options()), variance = torch::ones({4}, in[0].options());
          const auto y = torch::batch_norm(in[0], in[1], in[2], mean, variance, training, 0.1, 1e-5, false);
          return Tensors{y, mean, variance};
        },
        {seeded_normal({3, 4, 5, 5}, 8), seeded_normal({4}, 9), seeded_normal({4}, 10)});
  }
}

TEST_P(TestDeviceLayers, OtherNormalisations) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{torch::layer_norm(in[0], {6}, in[1], in[1]),
                       torch::group_norm(in[0].transpose(0, 1), 2), torch::rms_norm(in[0], {6}, in[1])};
      },
      {seeded_normal({4, 5, 6}, 11), seeded_normal({6}, 12)});
}

TEST_P(TestDeviceLayers, PoolingAndScaling) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto& x = in[0];
        return Tensors{torch::max_pool2d(x, 2),
                       torch::avg_pool2d(x, 3, 2),
                       torch::adaptive_avg_pool2d(x, {3, 2}),
                       torch::adaptive_avg_pool2d(x, {1, 1}),
                       at::upsample_bilinear2d(x, {12, 10}, false),
                       at::upsample_nearest2d(x, {4, 4})};
      },
      {seeded_normal({2, 3, 8, 8}, 13)});
}

TEST_P(TestDeviceLayers, Losses) {
  const auto classes = torch::tensor({1, 0, 3}, torch::kLong);
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{torch::cross_entropy_loss(in[0], in[1]),
                       torch::cross_entropy_loss(in[0], in[1], {}, at::Reduction::None, -100, 0.1),
                       torch::mse_loss(in[0], in[0] * 2), torch::smooth_l1_loss(in[0], in[0] * 3),
                       torch::binary_cross_entropy_with_logits(in[0], in[0].sigmoid())};
      },
      {seeded_normal({3, 4}, 14), classes});
}

TEST_P(TestDeviceLayers, Attention) {
  for (const bool is_causal : {true, false}) {
    expect_same_with_gradients(
        [&](const Tensors& in) {
          return Tensors{torch::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, is_causal)};
        },
        {seeded_normal({2, 2, 6, 8}, 15), seeded_normal({2, 2, 6, 8}, 16), seeded_normal({2, 2, 6, 8}, 17)});
  }
  const auto mask = torch::ones({6, 6}, torch::kBool).tril();
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{torch::scaled_dot_product_attention(in[0], in[1], in[2], in[3])};
      },
      {seeded_normal({2, 2, 6, 8}, 18), seeded_normal({2, 2, 6, 8}, 19), seeded_normal({2, 2, 6, 8}, 20),
       mask});
}

TEST_P(TestDeviceLayers, BagsOfEmbeddings) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        return Tensors{std::get<0>(torch::embedding_bag(in[0], in[1], in[2])),
                       std::get<0>(torch::embedding_bag(in[0], in[1], in[2], false, /*mean*/ 1))};
      },
      {seeded_normal({6, 3}, 21), torch::tensor({1, 5, 1, 0}, torch::kLong),
       torch::tensor({0, 3}, torch::kLong)});
}

TEST_P(TestDeviceLayers, ARecurrentNetwork) {
  torch::manual_seed(1);
  torch::nn::RNN on_cpu(torch::nn::RNNOptions(4, 5).num_layers(2));
  const auto copy = std::dynamic_pointer_cast<torch::nn::RNNImpl>(on_cpu->clone(device()));
  const auto x = seeded_normal({3, 2, 4}, 22);
  const auto expected = std::get<0>(on_cpu->forward(x));
  const auto values = std::get<0>(copy->forward(x.to(device())));
  expected.square().sum().backward();
  values.square().sum().backward();
  EXPECT_TRUE(torch::allclose(values.cpu(), expected, 1e-5, 1e-6));
  for (size_t i = 0; i < copy->parameters().size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(copy->parameters()[i].grad().cpu(), on_cpu->parameters()[i].grad(), 1e-4, 1e-6));
  }
}

TEST_P(TestDeviceLayers, AutocastComputesInTheLowerPrecision) {
  const auto x = seeded_normal({4, 8}, 23), weight = seeded_normal({3, 8}, 24);
  at::autocast::set_autocast_enabled(at::kPrivateUse1, true);
  at::autocast::set_autocast_dtype(at::kPrivateUse1, torch::kBFloat16);
  const auto product = torch::linear(x.to(device()), weight.to(device()));
  const auto probabilities = torch::softmax(product, 1);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kPrivateUse1, false);
  const auto expected = torch::linear(x.to(torch::kBFloat16), weight.to(torch::kBFloat16));
  expect_same(product, expected);
  expect_same(probabilities, torch::softmax(expected.to(torch::kFloat), 1));
}

}  // namespace
}  // namespace lockstep
