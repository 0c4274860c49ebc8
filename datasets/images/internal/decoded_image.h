#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An image in memory with 8 bits per value. `pixels` has the layout [height, width, channels]. One channel
/// is grey; three are red, green, blue.
struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;
};

/// Limits on memory when decoding, whatever a file declares.
struct DecodeLimits {
  /// Maximum of height times width. The default admits camera images and limits a decoded image to 192 MiB.
  int64_t max_pixels = int64_t{64} << 20;
  /// Maximum of height and of width. The default is the maximum of JPEG. It limits the memory for resizing
  /// very long and narrow images.
  int64_t max_side = 65535;
};

/// Decodes a PNG, JPEG or WebP file in memory. Detects the format by the first bytes, not by the name. `file`
/// is the name for error messages. Throws DataError for any damage; see decode_png(), decode_jpeg() and
/// decode_webp().
DecodedImage decode_image(std::span<const uint8_t> bytes, const std::string& file,
                          const DecodeLimits& limits = {});

/// Throws DataError unless the height and width from a file's header are within the limits.
void check_dimensions(uint64_t height, uint64_t width, const std::string& file, const DecodeLimits& limits);

}  // namespace lockstep
