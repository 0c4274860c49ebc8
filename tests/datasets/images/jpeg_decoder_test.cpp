#include "lockstep/datasets/images/internal/jpeg_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

/// A smooth image, so that little is lost: values rise from left to right and from top to bottom.
DecodedImage make_gradient(int64_t height, int64_t width, int64_t channels) {
  DecodedImage image{.height = height, .width = width, .channels = channels, .pixels = {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        image.pixels.push_back(static_cast<uint8_t>(40 + 2 * x + 3 * y + 30 * channel));
      }
    }
  }
  return image;
}

TEST(JpegDecoder, ReturnsWhatWasEncodedWithinTheLossOfQuality95) {
  for (const int64_t channels : {1, 3}) {
    for (const bool progressive : {false, true}) {
      const DecodedImage image = make_gradient(20, 17, channels);
      const DecodedImage decoded = decode_jpeg(testing::encode_jpeg(image, progressive), "image.jpg");
      ASSERT_EQ(decoded.height, 20);
      ASSERT_EQ(decoded.width, 17);
      ASSERT_EQ(decoded.channels, channels);
      ASSERT_EQ(decoded.pixels.size(), image.pixels.size());
      for (size_t i = 0; i < image.pixels.size(); ++i) {
        EXPECT_LE(std::abs(int{decoded.pixels[i]} - int{image.pixels[i]}), 12) << i;
      }
    }
  }
}

TEST(JpegDecoder, RefusesEveryTruncation) {
  for (const bool progressive : {false, true}) {
    const Bytes jpeg = testing::encode_jpeg(testing::make_image(9, 9, 3), progressive);
    for (size_t length = 0; length < jpeg.size(); ++length) {
      EXPECT_THROW(decode_jpeg(std::span(jpeg).first(length), "short.jpg"), DataError) << length << " bytes";
    }
  }
}

TEST(JpegDecoder, SurvivesEveryFlippedBit) {
  const Bytes jpeg = testing::encode_jpeg(testing::make_image(9, 9, 3));
  size_t refused = 0;
  for (size_t position = 0; position < jpeg.size(); ++position) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = jpeg;
      damaged[position] ^= static_cast<uint8_t>(1 << bit);
      try {
        // No checksum tells a changed coefficient from a true one: only the image's size can be checked.
        const DecodedImage image = decode_jpeg(damaged, "flipped.jpg", {.max_pixels = 1 << 20});
        EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.height * image.width * image.channels));
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("flipped.jpg"));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, jpeg.size());
}

TEST(JpegDecoder, RefusesHugeDimensions) {
  Bytes jpeg = testing::encode_jpeg(testing::make_image(8, 8, 1));
  // The frame header: marker, length, precision, height, width.
  const Bytes marker = {0xFF, 0xC0};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end());
  ASSERT_NE(frame, jpeg.end());
  const Bytes dimensions = {0xEA, 0x60, 0xEA, 0x60};  // 60000 x 60000
  std::copy(dimensions.begin(), dimensions.end(), frame + 5);
  EXPECT_THAT(
      [&] { decode_jpeg(jpeg, "huge.jpg"); },
      Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("huge.jpg"), HasSubstr("67108864")))));
}

TEST(JpegDecoder, MultipliesInvertedInksByInvertedBlack) {
  const DecodedImage inks = make_gradient(20, 17, 4);
  const DecodedImage decoded = decode_jpeg(testing::encode_jpeg(inks), "print.jpg");
  ASSERT_EQ(decoded.channels, 3);
  ASSERT_EQ(decoded.pixels.size(), size_t{20 * 17 * 3});
  for (size_t pixel = 0; pixel < size_t{20 * 17}; ++pixel) {
    for (size_t channel = 0; channel < 3; ++channel) {
      const int expected = inks.pixels[4 * pixel + channel] * inks.pixels[4 * pixel + 3] / 255;
      EXPECT_LE(std::abs(int{decoded.pixels[3 * pixel + channel]} - expected), 12) << pixel;
    }
  }
}

TEST(JpegDecoder, RefusesTwoColourComponents) {
  const Bytes jpeg = testing::encode_jpeg(make_gradient(8, 8, 2));
  EXPECT_THAT([&] { decode_jpeg(jpeg, "two.jpg"); },
              Throws<DataError>(Property(
                  &DataError::what,
                  HasSubstr("two.jpg: colour components: expected 1 (grey), 3 or 4 (CMYK), but got 2"))));
}

TEST(DecodeImage, TellsTheFormatByContent) {
  const DecodedImage image = make_gradient(8, 8, 1);
  EXPECT_EQ(decode_image(testing::encode_png(image), "misnamed.jpg").pixels, image.pixels);
  EXPECT_EQ(decode_image(testing::encode_jpeg(image), "misnamed.png").pixels.size(), image.pixels.size());
}

TEST(DecodeImage, SaysWhatItFoundInsteadOfAnImage) {
  EXPECT_THAT(
      [] { decode_image(testing::to_bytes("GIF89a"), "moving.png"); },
      Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("moving.png"), HasSubstr("signature"),
                                                         HasSubstr("47 49 46 38")))));
  EXPECT_THROW(decode_image({}, "empty.png"), DataError);
}

}  // namespace
}  // namespace lockstep
