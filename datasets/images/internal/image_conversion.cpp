#include "lockstep/datasets/images/internal/image_conversion.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep {
namespace {

/// The input positions that contribute to one output position, and their weights, which add up to 1.
struct Tap {
  int64_t first = 0;
  std::vector<float> weights;
};

/// Pixel i covers [i, i + 1). A triangle of half-width max(1, scale) is centred on the output pixel's centre,
/// as seen in the input.
std::vector<Tap> make_taps(int64_t input, int64_t output) {
  const double scale = static_cast<double>(input) / static_cast<double>(output);
  const double support = std::max(1.0, scale);
  std::vector<Tap> taps(static_cast<size_t>(output));
  for (int64_t i = 0; i < output; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Tap& tap = taps[static_cast<size_t>(i)];
    tap.first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - support + 0.5)));
    const int64_t end = std::min(input, static_cast<int64_t>(std::floor(centre + support + 0.5)));
    double sum = 0;
    for (int64_t x = tap.first; x < end; ++x) {
      const double distance = std::abs(static_cast<double>(x) + 0.5 - centre) / support;
      sum += std::max(0.0, 1.0 - distance);
      tap.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
    }
    for (float& weight : tap.weights) weight = static_cast<float>(weight / sum);
  }
  return taps;
}

uint8_t luma(const uint8_t* pixel) {
  return static_cast<uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
}

}  // namespace

ImageLayout layout_of(const DecodedImage& image) {
  return {.channels = image.channels, .height = image.height, .width = image.width};
}

void convert_image(const DecodedImage& image, const ImageLayout& layout, uint8_t* out) {
  if (image.height != layout.height || image.width != layout.width) {
    convert_image(resize(image, layout.height, layout.width), layout, out);
  } else if (image.channels == layout.channels) {
    std::copy(image.pixels.begin(), image.pixels.end(), out);
  } else if (image.channels == 1) {
    for (const uint8_t value : image.pixels) out = std::fill_n(out, layout.channels, value);
  } else {
    for (size_t i = 0; i < image.pixels.size(); i += 3) *out++ = luma(&image.pixels[i]);
  }
}

DecodedImage resize(const DecodedImage& image, int64_t height, int64_t width) {
  const std::vector<Tap> columns = make_taps(image.width, width);
  const std::vector<Tap> rows = make_taps(image.height, height);
  const int64_t channels = image.channels;
  const auto row_values = static_cast<size_t>(width * channels);

  // Resizes each row first and then mixes rows, so that both inner loops run over neighbours in memory.
  std::vector<float> narrowed(static_cast<size_t>(image.height) * row_values);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* in = image.pixels.data() + y * image.width * channels;
    float* out = narrowed.data() + static_cast<size_t>(y) * row_values;
    for (const Tap& tap : columns) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const uint8_t* value = in + tap.first * channels + channel;
        float sum = 0;
        for (const float weight : tap.weights) {
          sum += weight * static_cast<float>(*value);
          value += channels;
        }
        *out++ = sum;
      }
    }
  }

  DecodedImage result{.height = height, .width = width, .channels = channels, .pixels = {}};
  result.pixels.reserve(static_cast<size_t>(height) * row_values);
  std::vector<float> mixed(row_values);
  for (const Tap& tap : rows) {
    std::fill(mixed.begin(), mixed.end(), 0.0F);
    const float* in = narrowed.data() + static_cast<size_t>(tap.first) * row_values;
    for (const float weight : tap.weights) {
      for (size_t i = 0; i < row_values; ++i) mixed[i] += weight * in[i];
      in += row_values;
    }
    for (const float value : mixed) {
      result.pixels.push_back(static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)));
    }
  }
  return result;
}

}  // namespace lockstep
