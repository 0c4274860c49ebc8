#include "lockstep/runtime/base/files/png_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::make_image;
using ::testing::ThrowsMessage;

/// Decodes with libpng.
DecodedImage read_png(const std::vector<uint8_t>& file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, file.data(), file.size()), 0) << image.message;
  // Reads the file's own format, grey or RGB, without conversion.
  EXPECT_TRUE(image.format == PNG_FORMAT_GRAY || image.format == PNG_FORMAT_RGB);
  DecodedImage decoded{
      .height = image.height, .width = image.width, .channels = PNG_IMAGE_SAMPLE_CHANNELS(image.format)};
  decoded.pixels.resize(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, decoded.pixels.data(), 0, nullptr), 0) << image.message;
  return decoded;
}

TEST(PngEncoderTest, LosesNothing) {
  for (const int64_t channels : {1, 3}) {
    for (const auto& [height, width] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 7}, {28, 28}, {200, 3}}) {
      const DecodedImage image = make_image(height, width, channels, 3);
      const auto png = encode_png(image.pixels, {.width = width, .height = height, .channels = channels});
      const DecodedImage decoded = read_png(png);
      EXPECT_EQ(decoded.height, height);
      EXPECT_EQ(decoded.width, width);
      EXPECT_EQ(decoded.channels, channels);
      EXPECT_EQ(decoded.pixels, image.pixels);
    }
  }
}

TEST(PngEncoderTest, RefusesBytesThatDoNotFitTheShape) {
  const std::vector<uint8_t> pixels(12);
  EXPECT_THAT([&] { encode_png(pixels, {.width = 2, .height = 3, .channels = 3}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got 12 bytes for 2 x 3 x 3")));
  EXPECT_THROW(encode_png(pixels, {.width = 3, .height = 2, .channels = 2}), InvalidArgument);
  EXPECT_THROW(encode_png({}, {.width = 0, .height = 4}), InvalidArgument);
  EXPECT_THROW(encode_png(pixels, {.width = -3, .height = -4}), InvalidArgument);
  EXPECT_THROW(encode_png(pixels, {.width = int64_t{1} << 62, .height = 4}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
