#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Decodes a WebP file in memory, lossy or lossless, to 8-bit RGB. Drops alpha. Takes the first frame of an
/// animation; pixels that it does not cover are black. Throws DataError naming `file` for damaged or missing
/// data, and for dimensions above `limits`, before it allocates the pixels. WebP has no checksums, so damage
/// that leaves a valid stream cannot be detected. In a build without libwebp, always throws DataError, which
/// says what to install.
DecodedImage decode_webp(std::span<const uint8_t> bytes, const std::string& file,
                         const DecodeLimits& limits = {});

}  // namespace lockstep
