#include "lockstep/datasets/images/internal/webp_decoder.h"

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr DecodeLimits kLimits{.max_pixels = 1 << 16, .max_side = 4096};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  const PeakMemory memory;
  const auto image = accepted<DataError>([&] { return decode_webp(bytes, "fuzz.webp", kLimits); });
  memory.expect_at_most(4, size, 64 * static_cast<size_t>(kLimits.max_pixels));
  if (!image) return 0;
  expect(image->height >= 1 && image->width >= 1 && image->height <= kLimits.max_side &&
             image->width <= kLimits.max_side && image->height * image->width <= kLimits.max_pixels,
         "a size within the limits");
  expect(image->channels == 3, "RGB");
  expect(image->pixels.size() == static_cast<size_t>(image->height * image->width * 3), "all pixels");
  // Uninitialised pixels would differ.
  expect(decode_webp(bytes, "fuzz.webp", kLimits).pixels == image->pixels, "the same image a second time");
  return 0;
}

}  // namespace lockstep::fuzz
