#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// How the bytes of an image lie: rows from the top, pixels from the left, a byte a channel.
struct ImageShape {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;  ///< 1: grey, 3: RGB
};

/// The image as a PNG file, without loss. Throws InvalidArgument where the shape is none or does not fit the
/// number of bytes.
std::vector<uint8_t> encode_png(std::span<const uint8_t> pixels, const ImageShape& shape);

}  // namespace lockstep
