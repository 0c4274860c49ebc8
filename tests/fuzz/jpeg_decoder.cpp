#include "lockstep/datasets/images/internal/jpeg_decoder.h"

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::fuzz {
namespace {

constexpr DecodeLimits kLimits{.max_pixels = 1 << 16, .max_side = 4096};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  const PeakMemory memory;
  const auto image = accepted<DataError>([&] { return decode_jpeg(bytes, "fuzz.jpg", kLimits); });
  // The coefficients of a progressive image are kept: up to four components of two bytes, with padded blocks.
  memory.expect_at_most(4, size, 64 * static_cast<size_t>(kLimits.max_pixels));
  if (!image) return 0;
  expect(image->height >= 1 && image->width >= 1 && image->height <= kLimits.max_side &&
             image->width <= kLimits.max_side && image->height * image->width <= kLimits.max_pixels,
         "a size within the limits");
  expect(image->channels == 1 || image->channels == 3, "grey or RGB");
  expect(image->pixels.size() == static_cast<size_t>(image->height * image->width * image->channels),
         "all pixels");
  // Uninitialised pixels would differ.
  expect(decode_jpeg(bytes, "fuzz.jpg", kLimits).pixels == image->pixels, "the same image a second time");
  const auto again = decode_image(testing::encode_jpeg(*image), "fuzz.jpg", kLimits);
  expect(again.height == image->height && again.width == image->width && again.channels == image->channels,
         "an image of the same size out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
