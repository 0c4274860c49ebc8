#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/datasets/images/internal/decoded_image.h"
#include "lockstep/datasets/images/internal/image_conversion.h"

namespace lockstep {

/// Decodes an image as decode_image(), and if `apply_exif_orientation` is set, turns it upright.
DecodedImage decode_file(std::span<const uint8_t> bytes, const std::string& file,
                         bool apply_exif_orientation);

/// Throws ImageError naming the file unless the image has the layout's height and width.
void check_size_of(const DecodedImage& image, const ImageLayout& layout, const std::string& file);

}  // namespace lockstep
