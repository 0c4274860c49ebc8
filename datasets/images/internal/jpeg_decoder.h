#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Decodes a baseline or progressive JPEG file in memory to 8-bit grey or RGB. Converts CMYK and YCCK to RGB
/// as Pillow does: takes the inks as inverted, whether or not the file has Adobe's marker, and ignores colour
/// profiles. Ignores the EXIF orientation. Throws DataError naming `file` for damaged or missing data (which
/// other readers would replace by a grey area), and for dimensions above `limits`, before it allocates the
/// pixels. JPEG has no checksums, so damage that leaves a valid stream cannot be detected.
DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& file,
                         const DecodeLimits& limits = {});

}  // namespace lockstep
