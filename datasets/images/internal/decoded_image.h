#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An image in memory, 8 bits a value: `pixels` holds height x width x channels values, row by row, the
/// channels of a pixel side by side. One channel is grey, three are red, green, blue.
struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;
};

/// What a decoder refuses to allocate, whatever a file declares.
struct DecodeLimits {
  /// Height times width. The default admits what cameras take and caps a decoded image at 192 MiB.
  int64_t max_pixels = int64_t{64} << 20;
  /// Height and width, each. The default is what a JPEG can declare; it keeps the memory that resizing a very
  /// long and narrow image takes small.
  int64_t max_side = 65535;
};

/// Decodes a PNG or a JPEG file held in memory, told apart by its first bytes and not by its name. `file` is
/// what the errors call it. Throws DataError on any damage, see decode_png() and decode_jpeg().
DecodedImage decode_image(std::span<const uint8_t> bytes, const std::string& file,
                          const DecodeLimits& limits = {});

/// Throws DataError unless height and width are within the limits; both as declared in a file's header.
void check_dimensions(uint64_t height, uint64_t width, const std::string& file, const DecodeLimits& limits);

}  // namespace lockstep
