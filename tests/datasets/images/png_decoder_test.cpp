#include "lockstep/datasets/images/internal/png_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

/// How libpng writes an image; the rows are packed as the format requires.
struct PngKind {
  uint32_t width = 0;
  uint32_t height = 0;
  int bit_depth = 8;
  int colour_type = PNG_COLOR_TYPE_GRAY;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<png_byte> palette_alpha = {};
};

void on_write(png_structp png, png_bytep data, size_t size) {
  auto* out = static_cast<Bytes*>(png_get_io_ptr(png));
  out->insert(out->end(), data, data + size);
}

/// An encoder error means that the test is broken, so it aborts.
void on_error(png_structp, png_const_charp) {
  std::abort();
}

Bytes encode(const PngKind& kind, std::vector<Bytes> rows) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, on_write, nullptr);
  png_set_IHDR(png, info, kind.width, kind.height, kind.bit_depth, kind.colour_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  }
  if (!kind.palette_alpha.empty()) {
    png_set_tRNS(png, info, kind.palette_alpha.data(), static_cast<int>(kind.palette_alpha.size()), nullptr);
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  pointers.reserve(rows.size());
  for (Bytes& row : rows) pointers.push_back(row.data());
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

void append_big_endian(Bytes& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

void append_chunk(Bytes& out, const char* type, const Bytes& data) {
  Bytes checked = testing::to_bytes(type);
  checked.insert(checked.end(), data.begin(), data.end());
  append_big_endian(out, static_cast<uint32_t>(data.size()));
  out.insert(out.end(), checked.begin(), checked.end());
  append_big_endian(out, static_cast<uint32_t>(crc32(0, checked.data(), static_cast<uInt>(checked.size()))));
}

/// A PNG written byte by byte, with correct checksums, that may declare any size.
Bytes make_png(uint32_t width, uint32_t height, const Bytes& image_data) {
  Bytes out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Bytes header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  header.insert(header.end(), {8, PNG_COLOR_TYPE_GRAY, 0, 0, 0});
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", image_data);
  append_chunk(out, "IEND", {});
  return out;
}

/// Deflates `size` zeros without ever holding them all.
Bytes deflate_zeros(size_t size) {
  z_stream stream{};
  EXPECT_EQ(deflateInit(&stream, 9), Z_OK);
  Bytes zeros(std::min<size_t>(size, size_t{1} << 16)), out;
  std::array<Bytef, 4096> buffer{};
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    const size_t count = std::min(size, zeros.size());
    size -= count;
    stream.next_in = zeros.data();
    stream.avail_in = static_cast<uInt>(count);
    do {
      stream.next_out = buffer.data();
      stream.avail_out = static_cast<uInt>(buffer.size());
      status = deflate(&stream, size == 0 ? Z_FINISH : Z_NO_FLUSH);
      out.insert(out.end(), buffer.data(), stream.next_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return out;
}

/// The growth of the process's peak memory since construction, in kilobytes.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream reset("/proc/self/clear_refs");
    reset << 5 << std::flush;  // resets the peak to the current use
    can_be_reset_ = static_cast<bool>(reset);
    before_ = peak();
  }
  /// If false, the peak is that of the tests before.
  bool can_be_reset() const { return can_be_reset_; }
  int64_t growth() const { return peak() - before_; }

 private:
  static int64_t peak() {
    std::ifstream status("/proc/self/status");
    std::string name;
    int64_t kilobytes = 0;
    while (status >> name)
      if (name == "VmHWM:" && status >> kilobytes) break;
    return kilobytes;
  }

  bool can_be_reset_ = false;
  int64_t before_ = 0;
};

void expect_data_error(const Bytes& png, const std::string& text) {
  EXPECT_THAT([&] { decode_png(png, "broken.png"); },
              Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("broken.png"), HasSubstr(text)))));
}

TEST(PngDecoder, ReturnsThePixelsThatLibpngWrote) {
  for (const int64_t channels : {1, 3}) {
    const DecodedImage image = testing::make_image(7, 5, channels);
    const DecodedImage decoded = decode_png(testing::encode_png(image), "image.png");
    EXPECT_EQ(decoded.height, 7);
    EXPECT_EQ(decoded.width, 5);
    EXPECT_EQ(decoded.channels, channels);
    EXPECT_EQ(decoded.pixels, image.pixels);
  }
}

TEST(PngDecoder, ScalesSixteenBitsToEight) {
  // 0x1234 / 65535 * 255 = 18.13, 0xFFFF is white, 0x80FF / 65535 * 255 = 128.49.
  const PngKind kind{.width = 3, .height = 1, .bit_depth = 16};
  const DecodedImage decoded = decode_png(encode(kind, {{0x12, 0x34, 0xFF, 0xFF, 0x80, 0xFF}}), "image.png");
  EXPECT_EQ(decoded.channels, 1);
  EXPECT_EQ(decoded.pixels, (Bytes{18, 255, 128}));
}

TEST(PngDecoder, StretchesGreyOfFewBitsToTheFullRange) {
  EXPECT_EQ(
      decode_png(encode({.width = 4, .height = 1, .bit_depth = 1}, {{0b1010'0000}}), "image.png").pixels,
      (Bytes{255, 0, 255, 0}));
  EXPECT_EQ(
      decode_png(encode({.width = 4, .height = 1, .bit_depth = 2}, {{0b0001'1011}}), "image.png").pixels,
      (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(decode_png(encode({.width = 2, .height = 1, .bit_depth = 4}, {{0x1F}}), "image.png").pixels,
            (Bytes{17, 255}));
}

TEST(PngDecoder, LooksUpPalettes) {
  const PngKind kind{.width = 3,
                     .height = 1,
                     .bit_depth = 2,
                     .colour_type = PNG_COLOR_TYPE_PALETTE,
                     .palette = {{1, 2, 3}, {40, 50, 60}, {7, 8, 9}},
                     .palette_alpha = {0, 128}};
  const DecodedImage decoded = decode_png(encode(kind, {{0b0100'1000}}), "image.png");
  EXPECT_EQ(decoded.channels, 3);
  EXPECT_EQ(decoded.pixels, (Bytes{40, 50, 60, 1, 2, 3, 7, 8, 9}));
}

TEST(PngDecoder, DropsAlphaOfSixteenBitsAndATransparentColour) {
  const PngKind grey{.width = 2, .height = 1, .bit_depth = 16, .colour_type = PNG_COLOR_TYPE_GRAY_ALPHA};
  EXPECT_EQ(decode_png(encode(grey, {{0x0A, 0x0A, 0, 0, 0x14, 0x14, 0xFF, 0xFF}}), "image.png").pixels,
            (Bytes{10, 20}));
  const Bytes png =
      encode({.width = 2, .height = 1, .colour_type = PNG_COLOR_TYPE_RGB}, {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(decode_png(testing::with_png_chunk(png, "tRNS", {0, 1, 0, 2, 0, 3}), "image.png").pixels,
            (Bytes{1, 2, 3, 4, 5, 6}));
}

TEST(PngDecoder, DropsAlpha) {
  const PngKind grey{.width = 2, .height = 1, .colour_type = PNG_COLOR_TYPE_GRAY_ALPHA};
  EXPECT_EQ(decode_png(encode(grey, {{10, 0, 20, 255}}), "image.png").pixels, (Bytes{10, 20}));
  const PngKind colour{.width = 2, .height = 1, .colour_type = PNG_COLOR_TYPE_RGB_ALPHA};
  EXPECT_EQ(decode_png(encode(colour, {{1, 2, 3, 0, 4, 5, 6, 128}}), "image.png").pixels,
            (Bytes{1, 2, 3, 4, 5, 6}));
}

TEST(PngDecoder, PutsInterlacedImagesTogether) {
  const DecodedImage image = testing::make_image(11, 13, 1);
  std::vector<Bytes> rows;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.emplace_back(image.pixels.begin() + y * image.width, image.pixels.begin() + (y + 1) * image.width);
  }
  const Bytes png = encode({.width = 13, .height = 11, .interlaced = true}, rows);
  EXPECT_EQ(decode_png(png, "image.png").pixels, image.pixels);
}

constexpr size_t kEndChunkBytes = 12;

TEST(PngDecoder, RefusesEveryTruncationOfTheImageData) {
  for (const bool interlaced : {false, true}) {
    std::vector<Bytes> rows;
    for (uint8_t y = 0; y < 9; ++y) rows.push_back(Bytes(10, static_cast<uint8_t>(y * 20)));
    const Bytes png = encode({.width = 10, .height = 9, .interlaced = interlaced}, rows);
    for (size_t length = 0; length < png.size() - kEndChunkBytes; ++length) {
      EXPECT_THROW(decode_png(std::span(png).first(length), "short.png"), DataError) << length << " bytes";
    }
  }
}

TEST(PngDecoder, NeedsNoEndChunk) {
  const DecodedImage image = testing::make_image(6, 6, 3);
  const Bytes png = testing::encode_png(image);
  for (size_t length = png.size() - kEndChunkBytes; length < png.size(); ++length) {
    EXPECT_EQ(decode_png(std::span(png).first(length), "short.png").pixels, image.pixels)
        << length << " bytes";
  }
  Bytes cut_text(png.begin(), png.end() - kEndChunkBytes);
  append_chunk(cut_text, "tEXt", testing::to_bytes("Title"));
  cut_text.resize(cut_text.size() - 3);
  EXPECT_EQ(decode_png(cut_text, "short.png").pixels, image.pixels);
}

TEST(PngDecoder, RefusesEveryFlippedBit) {
  const DecodedImage image = testing::make_image(6, 6, 3);
  const Bytes png = testing::encode_png(image);
  for (size_t position = 0; position < png.size(); ++position) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = png;
      damaged[position] ^= static_cast<uint8_t>(1 << bit);
      try {
        const Bytes pixels = decode_png(damaged, "flipped.png").pixels;
        // An end chunk that claims to be longer than the rest of the file is as good as a missing one.
        const bool is_end_length =
            position >= png.size() - kEndChunkBytes && position < png.size() - kEndChunkBytes + 4;
        EXPECT_TRUE(is_end_length && pixels == image.pixels) << "byte " << position << ", bit " << bit;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("flipped.png"));
      }
    }
  }
}

TEST(PngDecoder, RefusesAWrongChecksumInAnIgnoredChunk) {
  const Bytes png = testing::encode_png(testing::make_image(2, 2, 1));
  Bytes with_text = testing::with_png_chunk(png, "tEXt", testing::to_bytes("Title"));
  EXPECT_NO_THROW(decode_png(with_text, "image.png"));
  constexpr size_t kAfterHeader = 8 + 25;
  with_text[kAfterHeader + (with_text.size() - png.size()) - 1] ^= 1;
  expect_data_error(with_text, "CRC");
}

TEST(PngDecoder, NamesTheFileOfAWrongSignature) {
  Bytes png = testing::encode_png(testing::make_image(2, 2, 1));
  png[0] = 'X';
  expect_data_error(png, "PNG");
  expect_data_error({}, "ends too early");
}

TEST(PngDecoder, RefusesAnEmptyImage) {
  expect_data_error(make_png(0, 0, deflate_zeros(1)), "is zero");
  expect_data_error(make_png(0, 1, deflate_zeros(1)), "width is zero");
  expect_data_error(make_png(1, 0, deflate_zeros(1)), "height is zero");
}

TEST(PngDecoder, RefusesHugeDimensionsWithoutAllocating) {
  const Bytes data = deflate_zeros(1000);
  const PeakMemory memory;
  if (!memory.can_be_reset())
    GTEST_SKIP() << "/proc/self/clear_refs cannot be written: no peak to compare with";
  expect_data_error(make_png(32768, 32768, data), "67108864 pixels, but got 32768 x 32768");
  expect_data_error(make_png(2147483647, 2147483647, data), "dimensions");
  // Within the limit, yet a few bytes cannot inflate to 64 MB.
  expect_data_error(make_png(8000, 8000, data), "can inflate to");
  EXPECT_LT(memory.growth(), 16 * 1024);
}

TEST(PngDecoder, NeverInflatesMoreThanTheImageHolds) {
  // Half a megabyte inflates to half a gigabyte of zeros, of which the image needs 110 bytes.
  const Bytes png = make_png(10, 10, deflate_zeros(size_t{1} << 29));
  const PeakMemory memory;
  if (!memory.can_be_reset())
    GTEST_SKIP() << "/proc/self/clear_refs cannot be written: no peak to compare with";
  try {
    const auto image = decode_png(png, "image.png");
    EXPECT_EQ(image.width * image.height, 100);
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("image.png"));
  }
  EXPECT_LT(memory.growth(), 16 * 1024);
}

TEST(PngDecoder, IgnoresTextsThatInflateToALot) {
  const Bytes plain = testing::encode_png(testing::make_image(4, 5, 1));
  Bytes content{'n', 'a', 'm', 'e', 0, 0};
  const Bytes text = deflate_zeros(size_t{1} << 29);
  content.insert(content.end(), text.begin(), text.end());
  const Bytes png = testing::with_png_chunk(plain, "zTXt", content);
  const PeakMemory memory;
  if (!memory.can_be_reset())
    GTEST_SKIP() << "/proc/self/clear_refs cannot be written: no peak to compare with";
  EXPECT_EQ(decode_png(png, "image.png").width, decode_png(plain, "image.png").width);
  EXPECT_LT(memory.growth(), 16 * 1024);
}

TEST(PngDecoder, RefusesAVeryLongSideWhateverTheOtherOneIs) {
  // Resizing such an image would take hundreds of megabytes for a single row or column.
  const Bytes data = deflate_zeros(size_t{2} * 65536);
  expect_data_error(make_png(1, 65536, data), "at most 65535 pixels a side, but got 1 x 65536");
  expect_data_error(make_png(65536, 1, data), "at most 65535 pixels a side, but got 65536 x 1");
  EXPECT_NO_THROW(decode_png(make_png(1, 65535, deflate_zeros(size_t{2} * 65535)), "image.png"));
}

TEST(PngDecoder, TakesTheCallersLimit) {
  const Bytes png = testing::encode_png(testing::make_image(4, 5, 1));
  EXPECT_NO_THROW(decode_png(png, "image.png", {.max_pixels = 20}));
  EXPECT_THROW(decode_png(png, "image.png", {.max_pixels = 19}), DataError);
  EXPECT_NO_THROW(decode_png(png, "image.png", {.max_side = 5}));
  EXPECT_THROW(decode_png(png, "image.png", {.max_side = 4}), DataError);
}

TEST(PngDecoder, RefusesMissingRows) {
  // The header declares ten rows; the data holds five (with their filter bytes), and every checksum is right.
  expect_data_error(make_png(10, 10, deflate_zeros(size_t{5} * 11)), "data");
}

}  // namespace
}  // namespace lockstep
