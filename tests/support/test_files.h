#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/images/internal/decoded_image.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::testing {

using Bytes = std::vector<uint8_t>;

Bytes to_bytes(std::string_view text);

/// An image whose pixels all differ from their neighbours. Each `seed` gives another image.
DecodedImage make_image(int64_t height, int64_t width, int64_t channels, uint64_t seed = 0);

/// Encodes with libpng, 8 bits a value, not interlaced.
Bytes encode_png(const DecodedImage& image);

/// Adds a chunk after the header of a PNG file. `type` has four letters.
Bytes with_png_chunk(const Bytes& png, std::string_view type, const Bytes& content);

/// Encodes with libjpeg at quality 95. Four channels are CMYK, with the marker that Adobe's programs write.
Bytes encode_jpeg(const DecodedImage& image, bool progressive = false);

struct ArchiveFile {
  std::string name;
  Bytes bytes;
};

/// A zip archive made by libzip.
Bytes make_zip(const std::vector<ArchiveFile>& files);

/// One entry of a zip archive made by hand, so that its fields may be false.
struct RawZipEntry {
  std::string name;
  Bytes content;          ///< as stored in the archive, after compression
  uint64_t size = 0;      ///< declared size when inflated
  uint32_t checksum = 0;  ///< CRC-32 of the inflated bytes
  bool is_deflated = false;
  bool is_encrypted = false;
  uint32_t unix_mode = 0100644;
};

/// A truthful entry, stored without compression.
RawZipEntry stored_entry(const std::string& name, Bytes content);

Bytes make_raw_zip(const std::vector<RawZipEntry>& entries);

/// The path of real MNIST's folder, or an empty string.
std::string mnist_folder();

}  // namespace lockstep::testing
