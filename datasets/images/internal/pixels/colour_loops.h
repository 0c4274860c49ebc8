#pragma once

// Included by source files that are each compiled for one kind of processor. Everything here has internal
// linkage and calls no inline function of other headers, because the linker could keep one version of it for
// all kinds. Loops have selects and no branches, so that they are vectorised.

#include <cstdint>

#include "lockstep/datasets/images/internal/pixels/colour_kernels.h"

namespace lockstep {
namespace {

/// Pixels that are changed at once, few enough for their planes to stay in the first cache.
constexpr int64_t kBlock = 512;
/// Each of so many sums takes every eighth pixel, so that wider vectors do not change the rounding.
constexpr int64_t kSums = 8;
using Doubles = double __attribute__((vector_size(kSums * sizeof(double))));

struct Block {
  alignas(64) float red[kBlock];
  alignas(64) float green[kBlock];
  alignas(64) float blue[kBlock];
};

float smaller(float one, float other) {
  return one < other ? one : other;
}
float larger(float one, float other) {
  return one > other ? one : other;
}
float within(float value) {
  return smaller(larger(value, 0.0F), 1.0F);
}

/// ITU-R BT.601, as torchvision rounds it.
float grey_of(float red, float green, float blue) {
  return 0.2989F * red + 0.587F * green + 0.114F * blue;
}

float brightened(float value, const ChannelScale& scale, float factor) {
  return within((value * scale.stddev + scale.mean) * factor);
}

float normalised(float value, const ChannelScale& scale) {
  return (value - scale.mean) / scale.stddev;
}

/// Copies `count` pixels, of which `begin` is the first, into planes.
template <bool kInterleaved>
void read(const float* __restrict values, int64_t pixels, int64_t begin, int64_t count, Block& block) {
  const float* __restrict from = values + (kInterleaved ? 3 * begin : begin);
  const int64_t step = kInterleaved ? 3 : 1, next = kInterleaved ? 1 : pixels;
  float* __restrict red = block.red;
  float* __restrict green = block.green;
  float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    red[i] = from[step * i];
    green[i] = from[step * i + next];
    blue[i] = from[step * i + 2 * next];
  }
}

/// Copies them back.
template <bool kInterleaved>
void write(const Block& block, float* __restrict values, int64_t pixels, int64_t begin, int64_t count) {
  float* __restrict to = values + (kInterleaved ? 3 * begin : begin);
  const int64_t step = kInterleaved ? 3 : 1, next = kInterleaved ? 1 : pixels;
  const float* __restrict red = block.red;
  const float* __restrict green = block.green;
  const float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    to[step * i] = red[i];
    to[step * i + next] = green[i];
    to[step * i + 2 * next] = blue[i];
  }
}

/// Undoes the normalisation, and changes the brightness.
void brighten(const RgbScale& scale, float factor, int64_t count, Block& block) {
  const RgbScale of = scale;
  float* __restrict red = block.red;
  float* __restrict green = block.green;
  float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    red[i] = brightened(red[i], of.red, factor);
    green[i] = brightened(green[i], of.green, factor);
    blue[i] = brightened(blue[i], of.blue, factor);
  }
}

void normalise(const RgbScale& scale, int64_t count, Block& block) {
  const RgbScale of = scale;
  float* __restrict red = block.red;
  float* __restrict green = block.green;
  float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    red[i] = normalised(red[i], of.red);
    green[i] = normalised(green[i], of.green);
    blue[i] = normalised(blue[i], of.blue);
  }
}

/// Adds `count` values to the sums. Sets up to seven values after them to 0.
void add_up(float* values, int64_t count, Doubles& sums) {
  while (count % kSums != 0) values[count++] = 0;
  Doubles added = sums;
  for (int64_t i = 0; i < count; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) added[k] += static_cast<double>(values[i + k]);
  }
  sums = added;
}

float mean_of(const Doubles& sums, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < kSums; ++k) sum += sums[k];
  return static_cast<float>(sum / static_cast<double>(count));
}

/// The mean of the grey image, after the change of brightness.
template <bool kInterleaved>
float mean_grey(const ImageChange& change, const RgbScale& scale, const float* values, int64_t pixels) {
  Doubles sums{};
  Block block;
  alignas(64) float grey[kBlock];
  for (int64_t begin = 0; begin < pixels; begin += kBlock) {
    const int64_t count = pixels - begin < kBlock ? pixels - begin : kBlock;
    read<kInterleaved>(values, pixels, begin, count, block);
    brighten(scale, change.brightness, count, block);
    for (int64_t i = 0; i < count; ++i) grey[i] = grey_of(block.red[i], block.green[i], block.blue[i]);
    add_up(grey, count, sums);
  }
  return mean_of(sums, pixels);
}

/// Changes contrast and saturation.
void blend(const ImageChange& change, float mean, int64_t count, Block& block) {
  const float contrast = change.contrast, saturation = change.saturation;
  const float of_mean = (1 - contrast) * mean;
  float* __restrict red = block.red;
  float* __restrict green = block.green;
  float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    const float r = within(contrast * red[i] + of_mean);
    const float g = within(contrast * green[i] + of_mean);
    const float b = within(contrast * blue[i] + of_mean);
    const float of_grey = (1 - saturation) * grey_of(r, g, b);
    red[i] = within(saturation * r + of_grey);
    green[i] = within(saturation * g + of_grey);
    blue[i] = within(saturation * b + of_grey);
  }
}

/// Returns the channel that is `shift` sixths of the circle from the hue. Each falls from most to least over
/// a sixth.
float channel_of(float hue, float shift, float most, float range) {
  const float place = hue + shift;
  const float k = place - (place >= 6 ? 6.0F : 0.0F);
  return most - range * larger(smaller(smaller(k, 4 - k), 1.0F), 0.0F);
}

/// Turns the hue of the hexcone model (Smith, Color Gamut Transform Pairs, 1978).
void turn_hue(float turn, int64_t count, Block& block) {
  float* __restrict red = block.red;
  float* __restrict green = block.green;
  float* __restrict blue = block.blue;
  for (int64_t i = 0; i < count; ++i) {
    const float r = red[i], g = green[i], b = blue[i];
    const float most = larger(larger(r, g), b);
    const float range = most - smaller(smaller(r, g), b);
    const float difference = most == r ? g - b : (most == g ? b - r : r - g);
    const float offset = most == r ? 0.0F : (most == g ? 2.0F : 4.0F);
    // In sixths of the circle, from 0 to 6. The hue of grey does not matter, as its range is 0.
    float hue = offset + difference / (range > 0 ? range : 1.0F) + 6 * turn;
    hue += hue < 0 ? 6.0F : 0.0F;
    hue -= hue >= 6 ? 6.0F : 0.0F;
    red[i] = channel_of(hue, 5, most, range);
    green[i] = channel_of(hue, 3, most, range);
    blue[i] = channel_of(hue, 1, most, range);
  }
}

template <bool kInterleaved>
void change_rgb(const ImageChange& change, const RgbScale& scale, const float* from, float* to,
                int64_t pixels) {
  const float mean = change.contrast == 1 ? 0 : mean_grey<kInterleaved>(change, scale, from, pixels);
  Block block;
  for (int64_t begin = 0; begin < pixels; begin += kBlock) {
    const int64_t count = pixels - begin < kBlock ? pixels - begin : kBlock;
    read<kInterleaved>(from, pixels, begin, count, block);
    brighten(scale, change.brightness, count, block);
    blend(change, mean, count, block);
    if (change.hue != 0) turn_hue(change.hue, count, block);
    normalise(scale, count, block);
    write<kInterleaved>(block, to, pixels, begin, count);
  }
}

void change_grey(const ImageChange& change, const ChannelScale& scale, const float* from, float* to,
                 int64_t pixels) {
  const ChannelScale of = scale;
  const float brightness = change.brightness, contrast = change.contrast;
  Doubles sums{};
  alignas(64) float block[kBlock];
  for (int64_t begin = 0; begin < pixels && contrast != 1; begin += kBlock) {
    const int64_t count = pixels - begin < kBlock ? pixels - begin : kBlock;
    for (int64_t i = 0; i < count; ++i) block[i] = brightened(from[begin + i], of, brightness);
    add_up(block, count, sums);
  }
  const float of_mean = contrast == 1 ? 0 : (1 - contrast) * mean_of(sums, pixels);
  for (int64_t i = 0; i < pixels; ++i)
    to[i] = normalised(within(contrast * brightened(from[i], of, brightness) + of_mean), of);
}

constexpr ColourKernels kColourKernels{
    .interleaved = change_rgb<true>, .planar = change_rgb<false>, .grey = change_grey};

}  // namespace
}  // namespace lockstep
