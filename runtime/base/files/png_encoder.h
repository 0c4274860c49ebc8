#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Layout of an image: rows from the top, pixels from the left, one byte for each channel.
struct ImageShape {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;  ///< 1: grey, 3: RGB.
};

/// Encodes the image losslessly as a PNG file. Throws InvalidArgument if the shape is invalid or does not fit
/// the number of bytes.
std::vector<uint8_t> encode_png(std::span<const uint8_t> pixels, const ImageShape& shape);

}  // namespace lockstep
