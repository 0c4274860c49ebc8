#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// The form of an image in memory: 8 bits a value, row by row, the channels of a pixel side by side.
struct ImageLayout {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  size_t bytes() const { return static_cast<size_t>(channels * height * width); }
  bool operator==(const ImageLayout&) const = default;
};

ImageLayout layout_of(const DecodedImage& image);

/// Writes the image in another layout to `out`, layout.bytes() long. Grey is repeated to three channels;
/// three channels become grey by the weights 0.299, 0.587, 0.114 of ITU-R BT.601; sizes change by resize().
void convert_image(const DecodedImage& image, const ImageLayout& layout, uint8_t* out);

/// Resizes by a bilinear filter, widened where the image shrinks so that no pixel is left out (antialiasing).
/// The same filter as ImageTransform's, for one image at a time, rounded to whole values.
DecodedImage resize(const DecodedImage& image, int64_t height, int64_t width);

}  // namespace lockstep
