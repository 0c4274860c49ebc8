#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Decodes a JPEG file held in memory, baseline or progressive, to 8-bit grey or RGB. An orientation in the
/// metadata is not applied. Throws DataError naming `file` for damaged or missing data (where other readers
/// would go on with a grey area), for CMYK images, and for dimensions above `limits`, which are checked
/// before the pixels are allocated. JPEG has no checksums: damage that leaves a valid stream cannot be seen.
DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& file,
                         const DecodeLimits& limits = {});

}  // namespace lockstep
