#pragma once

#include <cstdint>
#include <span>

#include "lockstep/datasets/images/internal/decoded_image.h"

namespace lockstep {

/// Returns the orientation in the EXIF data of a PNG, JPEG or WebP file in memory: 1 to 8 as EXIF numbers
/// them, where 1 means upright. Returns 1 if there is none or if the EXIF data is damaged: readers agree to
/// show such an image as it is stored. Reads this one tag of the main image only.
int exif_orientation(std::span<const uint8_t> file);

/// Returns the image turned and mirrored so that it is upright, given its EXIF orientation, 1 to 8. Height
/// and width change places for 5 to 8.
DecodedImage make_upright(DecodedImage image, int orientation);

}  // namespace lockstep
