#include "lockstep/datasets/images/image_transform.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>

namespace lockstep {
namespace {

torch::Tensor random_images(torch::IntArrayRef sizes) {
  torch::manual_seed(1);
  return torch::randint(0, 256, sizes, torch::kByte);
}

TEST(ImageTransform, ScalesAndNormalisesByTheFormula) {
  const torch::Tensor images = torch::tensor({0, 51, 255}, torch::kByte).view({1, 1, 1, 3});
  const ImageTransform transform{.channels = 1, .mean = {0.2}, .stddev = {0.5}};
  const torch::Tensor expected = torch::tensor({-0.4F, 0.0F, 1.6F}).view({1, 1, 1, 3});
  EXPECT_TRUE(torch::allclose(transform(images), expected, 0, 1e-7));
}

TEST(ImageTransform, TakesOneMeanAChannel) {
  for (const int64_t stored_channels : {1, 3}) {
    const torch::Tensor images = random_images({2, stored_channels, 4, 5});
    const ImageTransform transform{.mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.6, 0.7}};
    const torch::Tensor result = transform(images);
    for (int64_t channel = 0; channel < 3; ++channel) {
      const double mean = 0.1 * static_cast<double>(channel + 1);
      const double stddev = 0.5 + 0.1 * static_cast<double>(channel);
      const torch::Tensor stored = images.select(1, stored_channels == 1 ? 0 : channel).to(torch::kDouble);
      EXPECT_TRUE(torch::allclose(result.select(1, channel).to(torch::kDouble),
                                  (stored / 255 - mean) / stddev, 0, 1e-6));
    }
  }
}

TEST(ImageTransform, RepeatsGreyToThreeChannelsInChannelsLastFormat) {
  const torch::Tensor images = random_images({3, 1, 8, 8});
  const torch::Tensor result = ImageTransform{.image_size = 16, .mean = {0.5}, .stddev = {0.25}}(images);
  EXPECT_EQ(result.sizes(), (std::vector<int64_t>{3, 3, 16, 16}));
  EXPECT_TRUE(result.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(result.select(1, 0).equal(result.select(1, 1)));
  EXPECT_TRUE(result.select(1, 0).equal(result.select(1, 2)));
  EXPECT_TRUE(ImageTransform{}(random_images({2, 3, 4, 4})).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ImageTransform, EnlargesByLinearInterpolationBetweenPixelCentres) {
  // Two pixels at 0.5 and 1.5 become four at 0.25, 0.75, 1.25 and 1.75, the outer ones clamped.
  const torch::Tensor images = torch::tensor({0, 100, 0, 100}, torch::kByte).view({1, 1, 2, 2});
  const torch::Tensor result = ImageTransform{.image_size = 4, .channels = 1}(images)*255;
  const torch::Tensor row = torch::tensor({0.0F, 25.0F, 75.0F, 100.0F});
  EXPECT_TRUE(torch::allclose(result, row.expand({1, 1, 4, 4}), 0, 1e-4));
}

TEST(ImageTransform, ShrinksWithoutLeavingPixelsOut) {
  // For a factor of 4, a triangle 8 pixels wide weighs all pixels; without antialiasing, only two of four
  // would count.
  const torch::Tensor images = random_images({1, 1, 16, 16});
  const torch::Tensor result = ImageTransform{.image_size = 4, .channels = 1}(images);
  torch::Tensor weights = torch::zeros({4, 16}, torch::kDouble);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t x = 0; x < 16; ++x) {
      const double distance =
          std::abs((static_cast<double>(x) + 0.5) - (static_cast<double>(i) + 0.5) * 4) / 4;
      weights[i][x] = std::max(0.0, 1 - distance);
    }
  }
  weights = weights / weights.sum(1, /*keepdim=*/true);
  const torch::Tensor pixels = images.view({16, 16}).to(torch::kDouble) / 255;
  const torch::Tensor expected = weights.matmul(pixels).matmul(weights.t());
  EXPECT_TRUE(torch::allclose(result.view({4, 4}).to(torch::kDouble), expected, 0, 1e-6));
}

TEST(ImageTransform, LeavesItsInputAsItWas) {
  const torch::Tensor images = random_images({2, 1, 4, 4}).to(torch::kFloat);
  const torch::Tensor before = images.clone();
  ImageTransform{.channels = 1, .mean = {0.5}}(images);
  EXPECT_TRUE(images.equal(before));
}

TEST(ImageTransform, TakesAnEmptyBatch) {
  for (const int64_t channels : {1, 3}) {
    const ImageTransform transform{.image_size = 64, .channels = channels, .mean = {0.5}};
    const torch::Tensor result = transform(torch::empty({0, 1, 28, 28}, torch::kByte));
    EXPECT_EQ(result.sizes(), (std::vector<int64_t>{0, channels, 64, 64}));
    EXPECT_EQ(result.scalar_type(), torch::kFloat);
  }
}

TEST(ImageTransform, WorksOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  const torch::Tensor images = random_images({4, 1, 28, 28});
  const ImageTransform transform{.image_size = 64, .mean = {0.5}, .stddev = {0.5}};
  const torch::Tensor result = transform(images.to(torch::kCUDA));
  EXPECT_TRUE(result.is_cuda());
  EXPECT_TRUE(torch::allclose(result.cpu(), transform(images), 0, 1e-5));
}

TEST(ImageTransform, RefusesOptionsAndImagesThatDoNotFit) {
  EXPECT_THROW((ImageTransform{.image_size = -1}.check()), std::invalid_argument);
  EXPECT_THROW((ImageTransform{.channels = 2}.check()), std::invalid_argument);
  EXPECT_THROW((ImageTransform{.mean = {0.1, 0.2}}.check()), std::invalid_argument);
  EXPECT_THROW((ImageTransform{.stddev = {0.0}}.check()), std::invalid_argument);
  EXPECT_THROW((ImageTransform{.channels = 1}(random_images({1, 3, 4, 4}))), std::invalid_argument);
  EXPECT_THROW((ImageTransform{}(random_images({1, 4, 4}))), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
