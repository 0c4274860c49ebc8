#include "lockstep/datasets/images/image_augmentation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace {

// Pixels that all differ, and none is 0.
torch::Tensor numbered_images(int64_t n) {
  return torch::arange(1, n * 3 * 6 * 8 + 1, torch::kFloat).view({n, 3, 6, 8});
}

TEST(ImageAugmentation, ChangesNothingWithoutOptions) {
  const auto images = numbered_images(4);
  EXPECT_TRUE(ImageAugmentation{}(images, torch::arange(4), 3).equal(images));
}

TEST(ImageAugmentation, MirrorsAboutHalfOfTheImages) {
  constexpr int64_t kImages = 1000;
  const auto images = numbered_images(kImages);
  const auto changed = ImageAugmentation{.flip = true, .seed = 5}(images, torch::arange(kImages), 0);
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
  const auto changed = ImageAugmentation{.crop_padding = 2, .seed = 5}(images, torch::arange(kImages), 1);
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
  const auto indices = torch::arange(100, 112).flip(0);
  const ImageAugmentation augment{.crop_padding = 2, .flip = true, .seed = 7};
  const auto whole = augment(images, indices, 4);
  for (const int64_t size : {1, 4, 5, 6}) {
    std::vector<torch::Tensor> parts;
    for (int64_t i = 0; i < 12; i += size)
      parts.push_back(augment(images.slice(0, i, i + size), indices.slice(0, i, i + size), 4));
    EXPECT_TRUE(torch::cat(parts).equal(whole)) << size;
  }
  EXPECT_EQ(augment(images.slice(0, 0, 0), indices.slice(0, 0, 0), 4).sizes(), images.slice(0, 0, 0).sizes());
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
  const auto changed = ImageAugmentation{.flip = true, .seed = seed}(images, torch::arange(64), 9);
  for (int64_t i = 0; i < 64; ++i) {
    const uint64_t state = splitmix(splitmix(splitmix(seed) + 9) + static_cast<uint64_t>(i));
    const bool is_mirrored = (splitmix(state + 0x9e3779b97f4a7c15U) >> 63) == 1;
    EXPECT_TRUE(changed[i].equal(is_mirrored ? images[i].flip(2) : images[i])) << i;
  }
}

TEST(ImageAugmentation, DrawsAnewForEveryEpochAndSeed) {
  const auto images = numbered_images(12);
  const auto indices = torch::arange(12);
  const ImageAugmentation augment{.crop_padding = 2, .flip = true, .seed = 7};
  const ImageAugmentation other{.crop_padding = 2, .flip = true, .seed = 8};
  EXPECT_FALSE(augment(images, indices, 0).equal(augment(images, indices, 1)));
  EXPECT_FALSE(augment(images, indices, 0).equal(other(images, indices, 0)));
}

TEST(ImageAugmentation, RefusesWrongArguments) {
  const auto images = numbered_images(2);
  EXPECT_THROW((ImageAugmentation{.crop_padding = -1}(images, torch::arange(2), 0)), std::invalid_argument);
  EXPECT_THROW(ImageAugmentation{}(images, torch::arange(3), 0), std::invalid_argument);
  EXPECT_THROW(ImageAugmentation{}(images[0], torch::arange(3), 0), std::invalid_argument);
  EXPECT_THROW(ImageAugmentation{}(images, torch::zeros(2), 0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
