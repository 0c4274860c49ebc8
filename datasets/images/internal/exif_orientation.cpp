#include "lockstep/datasets/images/internal/exif_orientation.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr int kUpright = 1;
constexpr std::string_view kExifPrefix{"Exif\0\0", 6};

/// Reads numbers from bytes in the byte order that a format or a file has. Reads 0 beyond the end.
class NumberReader {
 public:
  NumberReader(Bytes bytes, bool is_big_endian) : bytes_(bytes), is_big_endian_(is_big_endian) {}

  uint32_t read(uint64_t offset, int num_bytes) const {
    if (offset > bytes_.size() || bytes_.size() - offset < static_cast<size_t>(num_bytes)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < num_bytes; ++i) {
      const int position = is_big_endian_ ? i : num_bytes - 1 - i;
      value = value << 8 | bytes_[offset + static_cast<uint64_t>(position)];
    }
    return value;
  }

 private:
  Bytes bytes_;
  bool is_big_endian_;
};

bool has_at(Bytes bytes, size_t offset, std::string_view text) {
  return offset <= bytes.size() && bytes.size() - offset >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                    [](char left, uint8_t right) { return static_cast<uint8_t>(left) == right; });
}

Bytes part_of(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size()) return {};
  return bytes.subspan(offset, std::min<uint64_t>(size, bytes.size() - offset));
}

/// Returns the EXIF data of a JPEG file: that of the first segment with it. Empty if there is none.
Bytes exif_of_jpeg(Bytes file) {
  constexpr uint32_t kApp1 = 0xFFE1;
  constexpr uint32_t kStartOfScan = 0xFFDA;
  constexpr uint32_t kFill = 0xFFFF;
  const NumberReader numbers(file, /*is_big_endian=*/true);
  for (uint64_t at = 2; at + 4 <= file.size();) {
    const uint32_t marker = numbers.read(at, 2);
    if (marker == kFill) {
      ++at;
      continue;
    }
    const uint64_t length = numbers.read(at + 2, 2);
    if (marker < 0xFF00 || marker == kStartOfScan || length < 2) return {};
    if (marker == kApp1 && has_at(file, at + 4, kExifPrefix)) return part_of(file, at + 4, length - 2);
    at += 2 + length;
  }
  return {};
}

/// Returns the EXIF data of a PNG file, whose chunks have a length, a name, content and a checksum.
Bytes exif_of_png(Bytes file) {
  const NumberReader numbers(file, /*is_big_endian=*/true);
  for (uint64_t at = 8; at + 12 <= file.size();) {
    const uint64_t length = numbers.read(at, 4);
    if (has_at(file, at + 4, "eXIf")) return part_of(file, at + 8, length);
    at += 12 + length;
  }
  return {};
}

/// Returns the EXIF data of a WebP file, whose chunks have a name, a length and content padded to an even
/// length.
Bytes exif_of_webp(Bytes file) {
  const NumberReader numbers(file, /*is_big_endian=*/false);
  for (uint64_t at = 12; at + 8 <= file.size();) {
    const uint64_t length = numbers.read(at + 4, 4);
    if (has_at(file, at, "EXIF")) return part_of(file, at + 8, length);
    at += 8 + length + length % 2;
  }
  return {};
}

/// Reads the tag from EXIF data, which is a TIFF file without an image: a header with the place of a
/// directory, which lists tags by number, type, count and value.
int orientation_in(Bytes exif) {
  constexpr uint32_t kOrientation = 0x0112;
  constexpr uint32_t kShort = 3;
  constexpr uint32_t kLong = 4;
  if (has_at(exif, 0, kExifPrefix)) exif = exif.subspan(kExifPrefix.size());
  const bool is_big_endian = has_at(exif, 0, "MM");
  if (!is_big_endian && !has_at(exif, 0, "II")) return kUpright;
  const NumberReader numbers(exif, is_big_endian);
  const uint64_t directory = numbers.read(4, 4);
  const uint32_t num_tags = numbers.read(directory, 2);
  for (uint32_t i = 0; i < num_tags; ++i) {
    const uint64_t tag = directory + 2 + uint64_t{12} * i;
    if (numbers.read(tag, 2) != kOrientation) continue;
    const uint32_t type = numbers.read(tag + 2, 2);
    if ((type != kShort && type != kLong) || numbers.read(tag + 4, 4) != 1) return kUpright;
    const uint32_t value = numbers.read(tag + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

}  // namespace

int exif_orientation(std::span<const uint8_t> file) {
  if (has_at(file, 0, "\xFF\xD8")) return orientation_in(exif_of_jpeg(file));
  if (has_at(file, 0, "\x89PNG")) return orientation_in(exif_of_png(file));
  if (has_at(file, 0, "RIFF") && has_at(file, 8, "WEBP")) return orientation_in(exif_of_webp(file));
  return kUpright;
}

DecodedImage make_upright(DecodedImage image, int orientation) {
  if (orientation <= kUpright || orientation > 8) return image;
  // The stored image's rows and columns, seen from the upright one.
  const bool swaps = orientation >= 5;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  DecodedImage upright{.height = swaps ? image.width : image.height,
                       .width = swaps ? image.height : image.width,
                       .channels = image.channels,
                       .pixels = {}};
  upright.pixels.reserve(image.pixels.size());
  for (int64_t y = 0; y < upright.height; ++y) {
    for (int64_t x = 0; x < upright.width; ++x) {
      int64_t row = swaps ? x : y;
      int64_t column = swaps ? y : x;
      if (from_bottom) row = image.height - 1 - row;
      if (from_right) column = image.width - 1 - column;
      const auto pixel = image.pixels.begin() + (row * image.width + column) * image.channels;
      upright.pixels.insert(upright.pixels.end(), pixel, pixel + image.channels);
    }
  }
  return upright;
}

}  // namespace lockstep
