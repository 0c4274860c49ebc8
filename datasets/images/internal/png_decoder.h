#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Decodes a PNG file held in memory. Every kind of PNG becomes 8-bit grey or RGB: 16-bit values are scaled
/// to 8, grey of 1, 2 and 4 bits to the full range, palettes become RGB, interlaced images whole ones; alpha
/// and colour-space chunks are dropped. Throws DataError naming `file` for a wrong signature, a wrong
/// checksum in any chunk, missing data up to and with the end chunk, and a size that is zero, above `limits`,
/// or more than the file could inflate to: the dimensions are checked before the pixels are allocated.
DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& file,
                        const DecodeLimits& limits = {});

}  // namespace lockstep
