#include "lockstep/datasets/images/generated_digits.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

std::vector<size_t> range(size_t begin, size_t end) {
  std::vector<size_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

TEST(GeneratedDigits, DrawsTheSameImageForASeedAndAnIndexInAnyThreadAndBatch) {
  const GeneratedDigits dataset({.count = 200, .seed = 3});
  const auto whole = dataset.get_batch(range(0, 200));
  std::vector<torch::Tensor> parts(4);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < parts.size(); ++i) {
      threads.emplace_back([&, i] {
        parts[i] = GeneratedDigits({.count = 1000, .seed = 3}).get_batch(range(50 * i, 50 * i + 50)).data;
      });
    }
  }
  EXPECT_TRUE(torch::cat(parts).equal(whole.data));
}

TEST(GeneratedDigits, DrawsOtherImagesForAnotherSeedOrIndex) {
  const auto indices = range(0, 1000);
  const torch::Tensor images =
      GeneratedDigits({.count = 1000, .seed = 3}).get_batch(indices).data.view({1000, -1});
  const torch::Tensor others =
      GeneratedDigits({.count = 1000, .seed = 4}).get_batch(indices).data.view({1000, -1});
  const torch::Tensor all = torch::cat({images, others});
  EXPECT_EQ(std::get<0>(torch::unique_dim(all, 0)).size(0), 2000);
}

TEST(GeneratedDigits, HoldsEveryClassEquallyOften) {
  const GeneratedDigits dataset({.count = 1000});
  EXPECT_EQ(dataset.size(), 1000U);
  const auto batch = dataset.get_batch(range(0, 1000));
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{1000, 1, 28, 28}));
  EXPECT_EQ(batch.data.scalar_type(), torch::kByte);
  EXPECT_EQ(batch.target.scalar_type(), torch::kLong);
  EXPECT_TRUE(batch.target.bincount().equal(torch::full({10}, 100, torch::kLong)));
}

TEST(GeneratedDigits, HasInkAndPaperInTheProportionsOfHandwriting) {
  const torch::Tensor images =
      GeneratedDigits({.count = 2000, .seed = 5}).get_batch(range(0, 2000)).data.to(torch::kFloat) / 255;
  // MNIST's mean is 0.13 and its deviation 0.31.
  EXPECT_NEAR(images.mean().item<double>(), 0.13, 0.05);
  EXPECT_NEAR(images.std().item<double>(), 0.31, 0.08);
  // The ink is inside: the border only holds noise.
  EXPECT_LT(images.select(3, 0).mean().item<double>(), 0.05);
  EXPECT_LT(images.select(2, 27).mean().item<double>(), 0.05);
}

TEST(GeneratedDigits, TeachesASmallNetworkToReadUnseenDigits) {
  // The batches are too small for threads to help.
  const int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  torch::manual_seed(1);
  const GeneratedDigits train({.count = 4000, .seed = 1});
  const GeneratedDigits test({.count = 1000, .seed = 2});
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 12, 5).stride(2)),
                              torch::nn::ReLU(),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(12, 24, 3).stride(2)),
                              torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(24 * 5 * 5, 10));
  torch::optim::Adam optimizer(model->parameters(), 3e-3);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    for (size_t begin = 0; begin < 4000; begin += 50) {
      const auto batch = train.device_transform(train.get_batch(range(begin, begin + 50)));
      optimizer.zero_grad();
      torch::cross_entropy_loss(model->forward(batch.data), batch.target).backward();
      optimizer.step();
    }
  }
  const torch::NoGradGuard no_grad;
  const auto batch = test.device_transform(test.get_batch(range(0, 1000)));
  const torch::Tensor right = model->forward(batch.data).argmax(1).eq(batch.target);
  at::set_num_threads(num_threads);
  EXPECT_GT(right.to(torch::kFloat).mean().item<double>(), 0.95);
}

TEST(GeneratedDigits, TransformsToTheSizeAskedFor) {
  const GeneratedDigits dataset({.count = 10, .image_size = 64, .channels = 3});
  const auto batch = dataset.device_transform(dataset.get_batch({1, 2}));
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 3, 64, 64}));
  EXPECT_EQ(batch.data.scalar_type(), torch::kFloat);
  const auto empty = dataset.device_transform(dataset.get_batch({}));
  EXPECT_EQ(empty.data.sizes(), (std::vector<int64_t>{0, 3, 64, 64}));
  EXPECT_EQ(empty.target.sizes(), (std::vector<int64_t>{0}));
}

TEST(GeneratedDigits, RefusesOptionsAndIndicesOutOfRange) {
  EXPECT_THROW(GeneratedDigits({.count = 0}), std::invalid_argument);
  EXPECT_THROW(GeneratedDigits({.channels = 2}), std::invalid_argument);
  EXPECT_THROW(GeneratedDigits({.count = 10}).get_batch({10}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
