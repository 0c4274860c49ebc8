#include "lockstep/datasets/images/image_augmentation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "lockstep/datasets/images/internal/device_augmentation.h"

namespace lockstep {
namespace {

std::vector<size_t> first_indices(size_t count, size_t begin = 0) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

// Pixels that all differ, and none is 0.
torch::Tensor numbered_images(int64_t n) {
  return torch::arange(1, n * 3 * 6 * 8 + 1, torch::kFloat).view({n, 3, 6, 8});
}

TEST(ImageAugmentation, ChangesNothingWithoutOptions) {
  const auto images = numbered_images(4);
  EXPECT_TRUE(ImageAugmentation{}(images, first_indices(4), 3).equal(images));
}

TEST(ImageAugmentation, MirrorsAboutHalfOfTheImages) {
  constexpr int64_t kImages = 1000;
  const auto images = numbered_images(kImages);
  const auto changed = ImageAugmentation{.flip = true, .seed = 5}(images, first_indices(kImages), 0);
  int64_t mirrored = 0;
  for (int64_t i = 0; i < kImages; ++i) {
    if (changed[i].equal(images[i])) continue;
    ASSERT_TRUE(changed[i].equal(images[i].flip(2)));
    ++mirrored;
  }
  EXPECT_NEAR(static_cast<double>(mirrored), 500, 5 * 16);  // five standard deviations
}

TEST(ImageAugmentation, CutsEachImageOutOfItsPaddedOneAtEveryPlace) {
  constexpr int64_t kImages = 500;
  const auto images = numbered_images(kImages);
  const auto changed = ImageAugmentation{.crop_padding = 2, .seed = 5}(images, first_indices(kImages), 1);
  const auto padded = torch::constant_pad_nd(images, {2, 2, 2, 2});
  auto counts = torch::zeros({5, 5}, torch::kLong);
  for (int64_t i = 0; i < kImages; ++i) {
    int found = 0;
    for (int64_t y = 0; y < 5; ++y) {
      for (int64_t x = 0; x < 5; ++x) {
        if (!padded[i].slice(1, y, y + 6).slice(2, x, x + 8).equal(changed[i])) continue;
        counts[y][x] += 1;
        ++found;
      }
    }
    ASSERT_EQ(found, 1);
  }
  EXPECT_GT(counts.min().item<int64_t>(), 0);
  EXPECT_LT(counts.max().item<int64_t>(), 45);  // 20 expected
}

TEST(ImageAugmentation, DoesNotDependOnHowABatchIsCut) {
  const auto images = numbered_images(12);
  auto indices = first_indices(12, 100);
  std::reverse(indices.begin(), indices.end());
  const ImageAugmentation augment{.crop_padding = 2,
                                  .flip = true,
                                  .rotation = 30,
                                  .brightness = 0.5,
                                  .contrast = 0.5,
                                  .saturation = 0.5,
                                  .hue = 0.5,
                                  .seed = 7};
  const auto whole = augment(images, indices, 4);
  for (const size_t size : {1, 4, 5, 6}) {
    std::vector<torch::Tensor> parts;
    for (size_t i = 0; i < 12; i += size) {
      const auto of_part = c10::ArrayRef<size_t>(indices).slice(i, std::min(size, 12 - i));
      parts.push_back(
          augment(images.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i + size)), of_part, 4));
    }
    EXPECT_TRUE(torch::cat(parts).equal(whole)) << size;
  }
  EXPECT_EQ(augment(images.slice(0, 0, 0), {}, 4).sizes(), images.slice(0, 0, 0).sizes());
}

// SplitMix64's mixing function in unsigned integers of the host.
uint64_t splitmix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

TEST(ImageAugmentation, MirrorsByTheFormula) {
  const uint64_t seed = 0xfedcba9876543210U;
  const auto images = numbered_images(64);
  const auto changed = ImageAugmentation{.flip = true, .seed = seed}(images, first_indices(64), 9);
  for (int64_t i = 0; i < 64; ++i) {
    const uint64_t state = splitmix(splitmix(splitmix(seed) + 9) + static_cast<uint64_t>(i));
    const bool is_mirrored = (splitmix(state + 0x9e3779b97f4a7c15U) >> 63) == 1;
    EXPECT_TRUE(changed[i].equal(is_mirrored ? images[i].flip(2) : images[i])) << i;
  }
}

TEST(ImageAugmentation, DrawsAnewForEveryEpochAndSeed) {
  const auto images = numbered_images(12);
  const auto indices = first_indices(12);
  const ImageAugmentation augment{.crop_padding = 2, .flip = true, .seed = 7};
  const ImageAugmentation other{.crop_padding = 2, .flip = true, .seed = 8};
  EXPECT_FALSE(augment(images, indices, 0).equal(augment(images, indices, 1)));
  EXPECT_FALSE(augment(images, indices, 0).equal(other(images, indices, 0)));
}

// Values of 0 to 1, some of them grey, black or white.
torch::Tensor colours(int64_t n, int64_t channels, int64_t height = 6, int64_t width = 8) {
  torch::manual_seed(3);
  auto images = torch::rand({n, channels, height, width});
  images.select(2, 1) = images.select(2, 1).slice(1, 0, 1);
  images.select(2, 2) = 0;
  images.select(2, 3) = 1;
  return images;
}

const ImageAugmentation kEverything{.crop_padding = 2,
                                    .flip = true,
                                    .rotation = 60,
                                    .brightness = 0.4,
                                    .contrast = 0.6,
                                    .saturation = 0.8,
                                    .hue = 0.4,
                                    .seed = 7};

TEST(ImageAugmentation, ChangesImagesOfOtherDevicesAlike) {
  for (const int64_t channels : {1, 3}) {
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      const auto images = colours(40, channels).contiguous(format);
      const auto draws = kEverything.draw(first_indices(40), 2);
      const auto changed = kEverything.apply(images, draws);
      EXPECT_TRUE(changed.is_contiguous(format));
      EXPECT_TRUE(changed.allclose(augment_by_tensors(kEverything, images, draws), 1e-4, 1e-5));
      ImageAugmentation moves{.crop_padding = 2, .flip = true, .seed = 7};
      EXPECT_TRUE(moves.apply(images, draws).equal(augment_by_tensors(moves, images, draws)));
      moves.rotation = 60;
      EXPECT_TRUE(moves.apply(images, draws).allclose(augment_by_tensors(moves, images, draws), 1e-4, 1e-5));
    }
  }
}

// Rows and images that are cut into blocks, the last of which is not full.
TEST(ImageAugmentation, ChangesLargeImagesOfOtherDevicesAlike) {
  for (const int64_t channels : {1, 3}) {
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      const auto images = colours(10, channels, 31, 301).contiguous(format);
      const auto draws = kEverything.draw(first_indices(10), 2);
      ImageAugmentation moves{.crop_padding = 2, .flip = true, .seed = 7};
      EXPECT_TRUE(moves.apply(images, draws).equal(augment_by_tensors(moves, images, draws)));
      moves.rotation = 60;
      // Coordinates are rounded in another order, and neighbours may differ by 1.
      EXPECT_TRUE(moves.apply(images, draws).allclose(augment_by_tensors(moves, images, draws), 1e-4, 1e-4));
      ImageAugmentation colour = kEverything;
      colour.crop_padding = 0;
      colour.flip = false;
      colour.rotation = 0;
      auto unmoved = draws.clone();
      unmoved.narrow(1, 0, 3).zero_();
      const auto changed = colour.apply(images, unmoved);
      EXPECT_TRUE(changed.allclose(augment_by_tensors(colour, images, unmoved), 1e-4, 1e-4));
      EXPECT_FALSE(changed.allclose(images, 1e-2, 1e-2));
    }
  }
}

TEST(ImageAugmentation, GivesTheSameBitsInBothMemoryFormatsAndOnAnyNumberOfThreads) {
  const auto images = colours(9, 3, 37, 150);
  const auto draws = kEverything.draw(first_indices(9), 1);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto expected = kEverything.apply(images, draws);
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(kEverything.apply(images, draws).equal(expected)) << count;
    EXPECT_TRUE(
        kEverything.apply(images.contiguous(torch::MemoryFormat::ChannelsLast), draws).equal(expected))
        << count;
  }
  at::set_num_threads(threads);
}

// torchvision returns images with one channel as they are.
TEST(ImageAugmentation, KeepsTheBitsOfGreyImagesWhenSaturationOrHueChange) {
  const ImageAugmentation augment{.saturation = 0.9, .hue = 0.5, .mean = {0.13}, .stddev = {0.31}, .seed = 4};
  // Some values are beyond black and white.
  const auto grey = colours(20, 1) * 5 - 1.5;
  const auto draws = augment.draw(first_indices(20), 0);
  EXPECT_TRUE(augment.apply(grey, draws).equal(grey));
  EXPECT_TRUE(augment_by_tensors(augment, grey, draws).equal(grey));
  const auto coloured = ((grey * 0.31 + 0.13).clamp(0, 1) - 0.13) / 0.31;
  const auto of_three = coloured.repeat({1, 3, 1, 1});
  // The weights of torchvision's grey sum up to 0.9999.
  EXPECT_TRUE(augment.apply(of_three, draws).allclose(of_three, 0, 1e-4 / 0.31));
}

TEST(ImageAugmentation, ChangesNormalisedImagesAsItChangesThemBefore) {
  const auto images = colours(20, 3);
  auto normalised = kEverything;
  normalised.mean = {0.4, 0.5, 0.3};
  normalised.stddev = {0.2, 0.3, 0.25};
  const auto mean = torch::tensor({0.4, 0.5, 0.3}).view({1, 3, 1, 1});
  const auto stddev = torch::tensor({0.2, 0.3, 0.25}).view({1, 3, 1, 1});
  const auto changed = normalised((images - mean) / stddev, first_indices(20), 1);
  EXPECT_TRUE((changed * stddev + mean).allclose(kEverything(images, first_indices(20), 1), 1e-4, 1e-5));
  // Black is 0 before normalisation.
  ImageAugmentation crop{.crop_padding = 2, .mean = {0.5}, .stddev = {0.25}, .seed = 1};
  EXPECT_EQ(crop(torch::full({50, 1, 4, 4}, 2.0F), first_indices(50), 0).min().item<float>(), -2);
}

TEST(ImageAugmentation, RotatesByQuarterTurnsWithoutInterpolation) {
  const auto images = torch::arange(2 * 3 * 7 * 7, torch::kFloat).view({2, 3, 7, 7});
  const ImageAugmentation rotate{.rotation = 180};
  auto draws = rotate.draw(first_indices(2), 0);
  for (int64_t turns = 0; turns < 4; ++turns) {
    draws.select(1, 3).fill_(std::vector{1, 0, -1, 0}[static_cast<size_t>(turns)]);
    draws.select(1, 4).fill_(std::vector{0, 1, 0, -1}[static_cast<size_t>(turns)]);
    EXPECT_TRUE(rotate.apply(images, draws).equal(images.rot90(turns, {2, 3}))) << turns;
  }
}

TEST(ImageAugmentation, DrawsAnglesAndFactorsUniformlyWithinTheirRanges) {
  const ImageAugmentation augment{
      .rotation = 20, .brightness = 0.4, .contrast = 1.5, .saturation = 0.2, .hue = 0.1, .seed = 3};
  const auto draws = augment.draw(first_indices(20000), 5).to(torch::kDouble);
  const auto angles = torch::atan2(draws.select(1, 4), draws.select(1, 3)) * (180 / M_PI);
  const auto check = [](const torch::Tensor& values, double from, double to) {
    EXPECT_GE(values.min().item<double>(), from - 1e-5);
    EXPECT_LE(values.max().item<double>(), to + 1e-5);
    const double width = to - from;
    EXPECT_NEAR(values.mean().item<double>(), (from + to) / 2, 5 * width / std::sqrt(12 * 20000.0));
    EXPECT_NEAR(values.var().item<double>(), width * width / 12, 0.03 * width * width / 12);
  };
  check(angles, -20, 20);
  check(draws.select(1, 5), 0.6, 1.4);
  check(draws.select(1, 6), 0, 2.5);
  check(draws.select(1, 7), 0.8, 1.2);
  check(draws.select(1, 8), -0.1, 0.1);
  // Each has its own draw.
  const auto correlations = torch::corrcoef(
      torch::stack({angles, draws.select(1, 5), draws.select(1, 6), draws.select(1, 7), draws.select(1, 8)}));
  EXPECT_LT((correlations - torch::eye(5, torch::kDouble)).abs().max().item<double>(), 0.04);
}

TEST(ImageAugmentation, SaysWhatItDoes) {
  EXPECT_EQ(kEverything.describe(),
            "crop_padding 2, flip, rotation 60, brightness 0.4, contrast 0.6, saturation 0.8, hue 0.4, mean "
            "0, stddev 1, seed 7");
  EXPECT_EQ((ImageAugmentation{.brightness = 0.12345672, .mean = {0.5, 0.25}, .stddev = {2}}).describe(),
            "brightness 0.12345672, mean 0.5 0.25, stddev 2, seed 0");
}

TEST(ImageAugmentation, MayCropAllOfAnImageAway) {
  for (const bool flip : {false, true}) {
    const ImageAugmentation augment{.crop_padding = int64_t{1} << 20, .flip = flip, .seed = 3};
    EXPECT_TRUE(augment(numbered_images(3), {0, 1, 2}, 0).eq(0).all().item<bool>());
  }
  EXPECT_THROW(ImageAugmentation({.crop_padding = (int64_t{1} << 20) + 1}).check(), std::invalid_argument);
  EXPECT_THROW(ImageAugmentation({.stddev = {1e-50}}).check(), std::invalid_argument);
  EXPECT_THROW(ImageAugmentation({.mean = {NAN}}).check(), std::invalid_argument);
}

TEST(ImageAugmentation, RefusesWrongArguments) {
  const auto images = numbered_images(2);
  const auto refuses = [&](const ImageAugmentation& augment) {
    EXPECT_THROW(augment(images, first_indices(2), 0), std::invalid_argument);
  };
  refuses({.crop_padding = -1});
  refuses({.rotation = 181});
  refuses({.rotation = -1});
  refuses({.brightness = -0.1});
  refuses({.contrast = NAN});
  refuses({.saturation = INFINITY});
  refuses({.hue = 0.6});
  refuses({.flip = true, .stddev = {0}});
  refuses({.flip = true, .mean = {}});
  refuses({.flip = true, .mean = {0, 0}});
  const ImageAugmentation flip{.flip = true};
  EXPECT_THROW(flip(images, first_indices(3), 0), std::invalid_argument);
  EXPECT_THROW(flip(images[0], first_indices(3), 0), std::invalid_argument);
  EXPECT_THROW(flip(images.to(torch::kByte), first_indices(2), 0), std::invalid_argument);
  EXPECT_THROW(flip(images.narrow(1, 0, 2), first_indices(2), 0), std::invalid_argument);
  EXPECT_THROW(flip.apply(images, torch::zeros({2, 3})), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
