#include "lockstep/datasets/images/internal/decoded_image.h"

#include <algorithm>
#include <array>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/jpeg_decoder.h"
#include "lockstep/datasets/images/internal/png_decoder.h"
#include "lockstep/datasets/images/internal/webp_decoder.h"

namespace lockstep {
namespace {

constexpr std::array<uint8_t, 4> kPngSignature = {0x89, 'P', 'N', 'G'};
constexpr std::array<uint8_t, 2> kJpegSignature = {0xFF, 0xD8};

bool starts_with(std::span<const uint8_t> bytes, std::span<const uint8_t> signature) {
  return bytes.size() >= signature.size() && std::equal(signature.begin(), signature.end(), bytes.begin());
}

/// The format's name follows the length of the file.
bool is_webp(std::span<const uint8_t> bytes) {
  constexpr std::array<uint8_t, 4> kRiff = {'R', 'I', 'F', 'F'};
  constexpr std::array<uint8_t, 4> kName = {'W', 'E', 'B', 'P'};
  return starts_with(bytes, kRiff) && bytes.size() >= 8 && starts_with(bytes.subspan(8), kName);
}

std::string hexadecimal(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "bytes";
  for (const uint8_t byte : bytes) {
    text += ' ';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

DecodedImage decode_image(std::span<const uint8_t> bytes, const std::string& file,
                          const DecodeLimits& limits) {
  if (starts_with(bytes, kPngSignature)) return decode_png(bytes, file, limits);
  if (starts_with(bytes, kJpegSignature)) return decode_jpeg(bytes, file, limits);
  if (is_webp(bytes)) return decode_webp(bytes, file, limits);
  throw DataError(file, "signature", "that of a PNG, JPEG or WebP image",
                  hexadecimal(bytes.first(std::min<size_t>(bytes.size(), 4))));
}

void check_dimensions(uint64_t height, uint64_t width, const std::string& file, const DecodeLimits& limits) {
  // All formats hold dimensions below 2^32, so the product is exact.
  if (height * width > static_cast<uint64_t>(limits.max_pixels)) {
    throw DataError(file, "dimensions", "at most " + std::to_string(limits.max_pixels) + " pixels",
                    std::to_string(width) + " x " + std::to_string(height));
  }
  if (std::max(height, width) > static_cast<uint64_t>(limits.max_side)) {
    throw DataError(file, "dimensions", "at most " + std::to_string(limits.max_side) + " pixels a side",
                    std::to_string(width) + " x " + std::to_string(height));
  }
}

}  // namespace lockstep
