#include "lockstep/runtime/base/files/png_encoder.h"

#include <png.h>

#include <new>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void check_image_shape(size_t num_bytes, const ImageShape& shape) {
  constexpr int64_t kLargest = 1 << 20;  // keeps the product below in range
  const auto [width, height, channels] = shape;
  const bool is_shape = width > 0 && width <= kLargest && height > 0 && height <= kLargest;
  if (is_shape && (channels == 1 || channels == 3) &&
      num_bytes ==
          static_cast<uint64_t>(width) * static_cast<uint64_t>(height) * static_cast<uint64_t>(channels)) {
    return;
  }
  throw InvalidArgument("[encode_png] expected width x height x 1 or 3 channels bytes, but got " +
                        std::to_string(num_bytes) + " bytes for " + std::to_string(width) + " x " +
                        std::to_string(height) + " x " + std::to_string(channels));
}

}  // namespace

std::vector<uint8_t> encode_png(std::span<const uint8_t> pixels, const ImageShape& shape) {
  check_image_shape(pixels.size(), shape);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(shape.width);
  image.height = static_cast<png_uint_32>(shape.height);
  image.format = shape.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<uint8_t> file(size);
  // A row stride of 0 means rows without gaps. libpng fails here only if memory runs out.
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::bad_alloc();
  }
  file.resize(size);
  return file;
}

}  // namespace lockstep
