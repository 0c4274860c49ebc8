#include "lockstep/datasets/images/internal/pixels/colour_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace lockstep {
namespace {

const RgbScale kScale{{0.48F, 0.23F}, {0.45F, 0.22F}, {0.4F, 0.25F}};
const ImageChange kAllColours{.brightness = 1.3F, .contrast = 0.7F, .saturation = 1.6F, .hue = 0.37F};

/// Random values, some of which are beyond black and white, and some grey.
std::vector<float> random_pixels(int64_t pixels) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-3, 3);
  std::vector<float> values;
  for (int64_t i = 0; i < 3 * pixels; ++i) values.push_back(uniform(random));
  for (size_t i = 0; i + 2 < values.size(); i += 21) values[i + 1] = values[i + 2] = values[i];
  return values;
}

std::vector<float> in_planes(const std::vector<float>& values) {
  const size_t pixels = values.size() / 3;
  std::vector<float> planes(values.size());
  for (size_t i = 0; i < pixels; ++i)
    for (size_t channel = 0; channel < 3; ++channel) planes[channel * pixels + i] = values[3 * i + channel];
  return planes;
}

struct ChangedColours {
  std::vector<float> interleaved, planar, grey;
};

ChangedColours changed_by(const ColourKernels& kernels, const ImageChange& change, int64_t pixels) {
  const auto values = random_pixels(pixels);
  ChangedColours changed{values, in_planes(values), values};
  const std::vector<float> planes = changed.planar;
  kernels.interleaved(change, kScale, values.data(), changed.interleaved.data(), pixels);
  kernels.planar(change, kScale, planes.data(), changed.planar.data(), pixels);
  kernels.grey(change, kScale.red, values.data(), changed.grey.data(), pixels);
  return changed;
}

// Whole blocks, parts of blocks and parts of vectors.
const std::vector<int64_t> kPixelCounts{1, 3, 7, 8, 100, 511, 512, 513, 784, 1531};
const std::vector<ImageChange> kColourChanges{kAllColours,
                                              {.brightness = 0.4F},
                                              {.contrast = 2.5F},
                                              {.saturation = 0},
                                              {.hue = -0.5F},
                                              {.hue = 0.5F},
                                              {.contrast = 0.9F, .hue = 0.01F}};

TEST(ColourKernels, GiveTheSameBitsOnEveryKindOfProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
#endif
  if (avx2_colour_kernels() == nullptr) GTEST_SKIP() << "there is one kind of kernels for this architecture";
  for (const int64_t pixels : kPixelCounts) {
    for (const auto& change : kColourChanges) {
      const auto one = changed_by(*baseline_colour_kernels(), change, pixels);
      const auto other = changed_by(*avx2_colour_kernels(), change, pixels);
      EXPECT_EQ(one.interleaved, other.interleaved) << pixels;
      EXPECT_EQ(one.planar, other.planar) << pixels;
      EXPECT_EQ(one.grey, other.grey) << pixels;
    }
  }
}

TEST(ColourKernels, GiveTheSameBitsForEveryLayoutAndInPlace) {
  for (const int64_t pixels : kPixelCounts) {
    const auto values = random_pixels(pixels);
    const auto changed = changed_by(colour_kernels(), kAllColours, pixels);
    EXPECT_EQ(in_planes(changed.interleaved), changed.planar) << pixels;
    auto in_place = values;
    colour_kernels().interleaved(kAllColours, kScale, in_place.data(), in_place.data(), pixels);
    EXPECT_EQ(in_place, changed.interleaved) << pixels;
    EXPECT_NE(in_place, values) << pixels;
    in_place = in_planes(values);
    colour_kernels().planar(kAllColours, kScale, in_place.data(), in_place.data(), pixels);
    EXPECT_EQ(in_place, changed.planar) << pixels;
  }
}

TEST(ColourKernels, LeaveValuesBehindTheImageAlone) {
  for (const int64_t pixels : kPixelCounts) {
    auto values = random_pixels(pixels + 20);
    const auto before = values;
    colour_kernels().interleaved(kAllColours, kScale, values.data(), values.data(), pixels);
    EXPECT_TRUE(std::equal(values.begin() + 3 * pixels, values.end(), before.begin() + 3 * pixels)) << pixels;
  }
}

TEST(ColourKernels, MoveGreyImagesAwayFromTheirMean) {
  constexpr int64_t kPixels = 1300;
  std::vector<float> values(kPixels);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 7) / 10;
    sum += values[i];
  }
  std::vector<float> changed(kPixels);
  colour_kernels().grey({.contrast = 0.5F}, {}, values.data(), changed.data(), kPixels);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(changed[i], 0.5 * values[i] + 0.5 * sum / kPixels, 1e-6) << i;
}

}  // namespace
}  // namespace lockstep
