#include "lockstep/tests/support/test_files.h"

#include <png.h>
#include <stdlib.h>
#include <zip.h>
#include <zlib.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <jpeglib.h>

namespace lockstep::testing {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void append(Bytes& out, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void append(Bytes& out, std::string_view text) {
  out.insert(out.end(), text.begin(), text.end());
}

/// Appends the fields that a zip entry's local header and its directory line share.
void append_zip_fields(Bytes& out, const RawZipEntry& entry) {
  append(out, 20, 2);  // version needed
  append(out, entry.is_encrypted ? 1 : 0, 2);
  append(out, entry.is_deflated ? 8 : 0, 2);
  append(out, 0x5A21'0000, 4);  // time and date
  append(out, entry.checksum, 4);
  append(out, entry.content.size(), 4);
  append(out, entry.size, 4);
  append(out, entry.name.size(), 2);
  append(out, 0, 2);  // extra field
}

}  // namespace

Bytes to_bytes(std::string_view text) {
  return Bytes(text.begin(), text.end());
}

DecodedImage make_image(int64_t height, int64_t width, int64_t channels, uint64_t seed) {
  DecodedImage image{.height = height, .width = width, .channels = channels, .pixels = {}};
  for (int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(static_cast<uint64_t>(i) * 37 + seed * 101 + 11));
  }
  return image;
}

Bytes encode_png(const DecodedImage& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.height);
  png.width = static_cast<png_uint_32>(image.width);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  require(png_image_write_get_memory_size(png, size, 0, image.pixels.data(), 0, nullptr) != 0, png.message);
  Bytes bytes(size);
  require(png_image_write_to_memory(&png, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) != 0,
          png.message);
  bytes.resize(size);
  return bytes;
}

Bytes with_png_chunk(const Bytes& png, std::string_view type, const Bytes& content) {
  Bytes checked = to_bytes(type);
  checked.insert(checked.end(), content.begin(), content.end());
  Bytes chunk;
  const auto append_big_endian = [&](uint64_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<uint8_t>(value >> shift));
  };
  append_big_endian(content.size());
  append(chunk, std::string_view(reinterpret_cast<const char*>(checked.data()), checked.size()));
  append_big_endian(::crc32(0, checked.data(), static_cast<uInt>(checked.size())));
  Bytes result = png;
  result.insert(result.begin() + 33, chunk.begin(), chunk.end());  // after the signature and IHDR
  return result;
}

Bytes encode_jpeg(const DecodedImage& image, bool progressive) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.input_components = static_cast<int>(image.channels);
  jpeg.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 3 ? JCS_RGB
                        : image.channels == 4 ? JCS_CMYK
                                              : JCS_UNKNOWN;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() + jpeg.next_scanline * image.width * image.channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

Bytes make_zip(const std::vector<ArchiveFile>& files) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/made.zip";
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_EXCL, nullptr);
  require(archive != nullptr, "cannot make a zip archive");
  for (const ArchiveFile& file : files) {
    if (file.name.ends_with('/')) {
      require(zip_dir_add(archive, file.name.c_str(), 0) >= 0, "cannot add a folder");
      continue;
    }
    zip_source_t* source = zip_source_buffer(archive, file.bytes.data(), file.bytes.size(), 0);
    require(zip_file_add(archive, file.name.c_str(), source, 0) >= 0, "cannot add a file");
  }
  require(zip_close(archive) == 0, "cannot write a zip archive");
  std::ifstream stream(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(stream), {});
}

RawZipEntry stored_entry(const std::string& name, Bytes content) {
  const auto checksum = static_cast<uint32_t>(::crc32(0, content.data(), static_cast<uInt>(content.size())));
  const uint64_t size = content.size();
  return {.name = name, .content = std::move(content), .size = size, .checksum = checksum};
}

Bytes make_raw_zip(const std::vector<RawZipEntry>& entries) {
  Bytes out;
  Bytes directory;
  for (const RawZipEntry& entry : entries) {
    const uint64_t offset = out.size();
    append(out, "PK\x03\x04");
    append_zip_fields(out, entry);
    append(out, entry.name);
    out.insert(out.end(), entry.content.begin(), entry.content.end());

    append(directory, "PK\x01\x02");
    append(directory, 20 | (3 << 8), 2);  // made by Unix
    append_zip_fields(directory, entry);
    append(directory, 0, 6);  // comment, disk, internal attributes
    append(directory, uint64_t{entry.unix_mode} << 16, 4);
    append(directory, offset, 4);
    append(directory, entry.name);
  }
  const uint64_t directory_offset = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  append(out, "PK\x05\x06");
  append(out, 0, 4);
  append(out, entries.size(), 2);
  append(out, entries.size(), 2);
  append(out, directory.size(), 4);
  append(out, directory_offset, 4);
  append(out, 0, 2);
  return out;
}

std::string mnist_folder() {
  // Nothing here changes the environment.
  const char* folder = std::getenv("LOCKSTEP_MNIST_DIR");  // NOLINT(concurrency-mt-unsafe)
  return folder == nullptr ? "" : folder;
}

}  // namespace lockstep::testing
