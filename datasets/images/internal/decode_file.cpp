#include "lockstep/datasets/images/internal/decode_file.h"

#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/exif_orientation.h"

namespace lockstep {

DecodedImage decode_file(std::span<const uint8_t> bytes, const std::string& file,
                         bool apply_exif_orientation) {
  DecodedImage image = decode_image(bytes, file);
  if (!apply_exif_orientation) return image;
  return make_upright(std::move(image), exif_orientation(bytes));
}

void check_size_of(const DecodedImage& image, const ImageLayout& layout, const std::string& file) {
  if (image.height == layout.height && image.width == layout.width) return;
  throw ImageError(file, "size",
                   std::to_string(layout.width) + " x " + std::to_string(layout.height) +
                       " as the first image's, or the option image_size",
                   std::to_string(image.width) + " x " + std::to_string(image.height));
}

}  // namespace lockstep
