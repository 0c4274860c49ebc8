#include "lockstep/apps/inspect_data/image_header.h"

#include <cstddef>

namespace lockstep::apps {
namespace {

/// Returns the unsigned number in some bytes, which must be there.
int64_t big_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t number = 0;
  for (size_t i = 0; i < count; ++i) number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  return number;
}

int64_t little_endian(std::string_view bytes, size_t at, size_t count) {
  int64_t number = 0;
  for (size_t i = count; i > 0; --i) number = number << 8 | static_cast<uint8_t>(bytes[at + i - 1]);
  return number;
}

/// The chunk IHDR comes first (W3C's "Portable Network Graphics").
ImageHeader png_header(std::string_view bytes) {
  ImageHeader header{.format = "PNG"};
  constexpr size_t kEndOfSizes = 24;
  if (bytes.size() < kEndOfSizes) return header;
  header.width = big_endian(bytes, 16, 4);
  header.height = big_endian(bytes, 20, 4);
  return header;
}

/// Looks for the frame's header among the segments (ITU-T T.81, annex B).
ImageHeader jpeg_header(std::string_view bytes) {
  ImageHeader header{.format = "JPEG"};
  size_t at = 2;
  while (at + 9 <= bytes.size()) {
    if (bytes[at] != '\xff') return header;
    const auto marker = static_cast<uint8_t>(bytes[at + 1]);
    if (marker == 0xff) {  // fill bytes
      ++at;
      continue;
    }
    const bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) {
      header.height = big_endian(bytes, at + 5, 2);
      header.width = big_endian(bytes, at + 7, 2);
      return header;
    }
    const bool has_no_length = marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
    at += 2 + (has_no_length ? 0 : static_cast<size_t>(big_endian(bytes, at + 2, 2)));
  }
  return header;
}

/// The first chunk has the size (RFC 9649).
ImageHeader webp_header(std::string_view bytes) {
  ImageHeader header{.format = "WebP"};
  constexpr size_t kEndOfSizes = 30;
  if (bytes.size() < kEndOfSizes) return header;
  const std::string_view chunk = bytes.substr(12, 4);
  if (chunk == "VP8 ") {
    header.width = little_endian(bytes, 26, 2) & 0x3fff;
    header.height = little_endian(bytes, 28, 2) & 0x3fff;
  } else if (chunk == "VP8L") {
    const int64_t bits = little_endian(bytes, 21, 4);
    header.width = (bits & 0x3fff) + 1;
    header.height = ((bits >> 14) & 0x3fff) + 1;
  } else if (chunk == "VP8X") {
    header.width = little_endian(bytes, 24, 3) + 1;
    header.height = little_endian(bytes, 27, 3) + 1;
  }
  return header;
}

}  // namespace

ImageHeader read_image_header(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return png_header(bytes);
  if (bytes.starts_with("\xff\xd8\xff")) return jpeg_header(bytes);
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP")
    return webp_header(bytes);
  return {.format = "none of these"};
}

}  // namespace lockstep::apps
