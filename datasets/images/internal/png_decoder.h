#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Decodes a PNG file in memory to 8-bit grey or RGB. Scales 16-bit values to 8 bits and grey of 1, 2 and 4
/// bits to the full range; converts palettes to RGB; supports interlaced images; drops alpha and colour-space
/// chunks. A file may end after its image data, without an end chunk. Throws DataError naming `file` for a
/// wrong signature, a wrong checksum in any chunk, missing image data, and a size that is zero, above
/// `limits`, or larger than the file could inflate to. Checks the dimensions before it allocates the pixels.
DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& file,
                        const DecodeLimits& limits = {});

}  // namespace lockstep
