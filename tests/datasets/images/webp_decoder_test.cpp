#include "lockstep/datasets/images/internal/webp_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <webp/encode.h>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::make_image;
using ::testing::Property;
using ::testing::Throws;

Bytes taken(uint8_t* memory, size_t size) {
  EXPECT_GT(size, 0U);
  Bytes bytes(memory, memory + size);
  WebPFree(memory);
  return bytes;
}

/// Encodes an RGB image with libwebp.
Bytes encode_webp(const DecodedImage& image, bool lossless = true) {
  const auto width = static_cast<int>(image.width);
  const auto height = static_cast<int>(image.height);
  uint8_t* memory = nullptr;
  const size_t size = lossless ? WebPEncodeLosslessRGB(image.pixels.data(), width, height, 3 * width, &memory)
                               : WebPEncodeRGB(image.pixels.data(), width, height, 3 * width, 95, &memory);
  return taken(memory, size);
}

void expect_data_error(const Bytes& webp, const std::string& text, const DecodeLimits& limits = {}) {
  EXPECT_THAT(
      [&] { decode_webp(webp, "broken.webp", limits); },
      Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("broken.webp"), HasSubstr(text)))));
}

TEST(WebpDecoder, ReturnsThePixelsThatLibwebpWrote) {
  const DecodedImage image = make_image(7, 5, 3);
  const DecodedImage decoded = decode_webp(encode_webp(image), "image.webp");
  EXPECT_EQ(decoded.height, 7);
  EXPECT_EQ(decoded.width, 5);
  EXPECT_EQ(decoded.channels, 3);
  EXPECT_EQ(decoded.pixels, image.pixels);
}

TEST(WebpDecoder, DropsAlphaOfSeeThroughPixels) {
  const Bytes pixels = {1, 2, 3, 255, 40, 50, 60, 128};
  uint8_t* memory = nullptr;
  const size_t size = WebPEncodeLosslessRGBA(pixels.data(), 2, 1, 8, &memory);
  EXPECT_EQ(decode_webp(taken(memory, size), "image.webp").pixels, (Bytes{1, 2, 3, 40, 50, 60}));
}

TEST(WebpDecoder, IsChosenByContent) {
  const DecodedImage image = make_image(6, 6, 3);
  EXPECT_EQ(decode_image(encode_webp(image), "misnamed.png").pixels, image.pixels);
}

TEST(WebpDecoder, RefusesEveryTruncation) {
  for (const bool lossless : {false, true}) {
    const Bytes webp = encode_webp(make_image(16, 9, 3), lossless);
    for (size_t length = 0; length < webp.size(); ++length) {
      EXPECT_THROW(decode_webp(std::span(webp).first(length), "short.webp"), DataError) << length << " bytes";
    }
  }
}

TEST(WebpDecoder, SurvivesEveryFlippedBit) {
  for (const bool lossless : {false, true}) {
    const Bytes webp = encode_webp(make_image(9, 9, 3), lossless);
    size_t refused = 0;
    for (size_t position = 0; position < webp.size(); ++position) {
      for (int bit = 0; bit < 8; ++bit) {
        Bytes damaged = webp;
        damaged[position] ^= static_cast<uint8_t>(1 << bit);
        try {
          // There are no checksums: only the image's size can be checked.
          const DecodedImage image = decode_webp(damaged, "flipped.webp", {.max_pixels = 1 << 20});
          EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height * image.width * image.channels));
        } catch (const DataError& error) {
          EXPECT_THAT(error.what(), HasSubstr("flipped.webp"));
          ++refused;
        }
      }
    }
    EXPECT_GT(refused, 8 * 12U) << "at least all of the header's";
  }
}

TEST(WebpDecoder, TakesTheCallersLimits) {
  const Bytes webp = encode_webp(make_image(4, 5, 3));
  EXPECT_NO_THROW(decode_webp(webp, "image.webp", {.max_pixels = 20, .max_side = 5}));
  expect_data_error(webp, "at most 19 pixels, but got 5 x 4", {.max_pixels = 19});
  expect_data_error(webp, "at most 4 pixels a side", {.max_side = 4});
}

TEST(WebpDecoder, NamesTheFileOfOtherContent) {
  expect_data_error({}, "damaged WebP");
  expect_data_error(testing::to_bytes("RIFF\x04 is not one of WEBP's"), "damaged WebP");
}

}  // namespace
}  // namespace lockstep
