#include "lockstep/datasets/images/internal/png_decoder.h"

#include <zlib.h>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::fuzz {
namespace {

constexpr DecodeLimits kLimits{.max_pixels = 1 << 16, .max_side = 4096};

bool is_same(const DecodedImage& one, const DecodedImage& other) {
  return one.height == other.height && one.width == other.width && one.channels == other.channels &&
         one.pixels == other.pixels;
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

/// Most damage would get no further than a chunk's checksum, so seven of eight mutations correct it.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  constexpr size_t kSignature = 8;
  constexpr size_t kAroundChunk = 12;  // length, type and checksum
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) return size;
  for (size_t at = kSignature; size - std::min(at, size) >= kAroundChunk;) {
    const size_t length = big_endian(data + at);
    if (length > size - at - kAroundChunk) break;
    const auto checksum = crc32(0, data + at + 4, static_cast<uInt>(4 + length));
    for (size_t i = 0; i < 4; ++i) data[at + 8 + length + i] = static_cast<uint8_t>(checksum >> (24 - 8 * i));
    at += kAroundChunk + length;
  }
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  const PeakMemory memory;
  const auto image = accepted<DataError>([&] { return decode_png(bytes, "fuzz.png", kLimits); });
  memory.expect_at_most(4, size, 8 * static_cast<size_t>(kLimits.max_pixels));
  if (!image) return 0;
  expect(image->height >= 1 && image->width >= 1 && image->height <= kLimits.max_side &&
             image->width <= kLimits.max_side && image->height * image->width <= kLimits.max_pixels,
         "a size within the limits");
  expect(image->channels == 1 || image->channels == 3, "grey or RGB");
  expect(image->pixels.size() == static_cast<size_t>(image->height * image->width * image->channels),
         "all pixels");
  // Uninitialised pixels would differ.
  expect(is_same(decode_png(bytes, "fuzz.png", kLimits), *image), "the same image a second time");
  expect(is_same(decode_image(testing::encode_png(*image), "fuzz.png", kLimits), *image),
         "the same image out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
