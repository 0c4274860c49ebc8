#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Layout of an image in memory: [height, width, channels], 8 bits per value.
struct ImageLayout {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  size_t bytes() const { return static_cast<size_t>(channels * height * width); }
  bool operator==(const ImageLayout&) const = default;
};

ImageLayout layout_of(const DecodedImage& image);

/// Writes the image to `out` (layout.bytes() long) in another layout. Repeats grey for three channels;
/// converts three channels to grey with the weights 0.299, 0.587, 0.114 of ITU-R BT.601; changes the size
/// with resize().
void convert_image(const DecodedImage& image, const ImageLayout& layout, uint8_t* out);

/// Resizes with a bilinear filter. When shrinking, widens the filter to cover all pixels (antialiasing). Uses
/// the same filter as ImageTransform, for one image at a time, and rounds to whole values.
DecodedImage resize(const DecodedImage& image, int64_t height, int64_t width);

}  // namespace lockstep
