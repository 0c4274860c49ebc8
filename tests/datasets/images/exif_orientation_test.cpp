// The orientations of files that Pillow wrote are compared with Pillow in pillow_python_test.py.
#include "lockstep/datasets/images/internal/exif_orientation.h"

#include <gtest/gtest.h>

#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using testing::Bytes;

/// EXIF data with the orientation as its only tag.
Bytes exif_of(uint8_t orientation) {
  return {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0};
}

/// A JPEG file with these segments before the others.
Bytes jpeg_with(const std::vector<Bytes>& segments) {
  Bytes jpeg = testing::encode_jpeg(testing::make_image(4, 4, 1));
  auto at = jpeg.begin() + 2;
  for (const Bytes& segment : segments) at = jpeg.insert(at, segment.begin(), segment.end()) + segment.size();
  return jpeg;
}

Bytes segment_of(uint8_t marker, Bytes content) {
  const size_t length = content.size() + 2;
  Bytes segment{0xFF, marker, static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)};
  segment.insert(segment.end(), content.begin(), content.end());
  return segment;
}

Bytes exif_segment(uint8_t orientation) {
  Bytes content{'E', 'x', 'i', 'f', 0, 0};
  const Bytes exif = exif_of(orientation);
  content.insert(content.end(), exif.begin(), exif.end());
  return segment_of(0xE1, content);
}

TEST(ExifOrientation, TurnsAndMirrorsAsEachNumberSays) {
  // The numbers of EXIF's standard, for an image that shows 1 2 3 above 4 5 6 once it is upright.
  const std::vector<std::pair<int, DecodedImage>> stored = {
      {1, {2, 3, 1, {1, 2, 3, 4, 5, 6}}}, {2, {2, 3, 1, {3, 2, 1, 6, 5, 4}}},
      {3, {2, 3, 1, {6, 5, 4, 3, 2, 1}}}, {4, {2, 3, 1, {4, 5, 6, 1, 2, 3}}},
      {5, {3, 2, 1, {1, 4, 2, 5, 3, 6}}}, {6, {3, 2, 1, {3, 6, 2, 5, 1, 4}}},
      {7, {3, 2, 1, {6, 3, 5, 2, 4, 1}}}, {8, {3, 2, 1, {4, 1, 5, 2, 6, 3}}}};
  for (const auto& [orientation, image] : stored) {
    const DecodedImage upright = make_upright(image, orientation);
    EXPECT_EQ(upright.height, 2) << orientation;
    EXPECT_EQ(upright.width, 3) << orientation;
    EXPECT_EQ(upright.pixels, (Bytes{1, 2, 3, 4, 5, 6})) << orientation;
  }
}

TEST(ExifOrientation, KeepsTheChannelsOfAPixelTogether) {
  const DecodedImage image{.height = 1, .width = 2, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}};
  EXPECT_EQ(make_upright(image, 3).pixels, (Bytes{4, 5, 6, 1, 2, 3}));
}

TEST(ExifOrientation, IsFoundBehindOtherSegmentsOfAJpeg) {
  EXPECT_EQ(exif_orientation(jpeg_with({})), 1);
  EXPECT_EQ(exif_orientation(jpeg_with({exif_segment(6)})), 6);
  const Bytes comment = segment_of(0xFE, testing::to_bytes("a comment"));
  const Bytes other_app1 = segment_of(0xE1, testing::to_bytes("http://ns.adobe.com/xap/1.0/"));
  EXPECT_EQ(exif_orientation(jpeg_with({comment, other_app1, {0xFF}, exif_segment(8)})), 8);
  EXPECT_EQ(exif_orientation(jpeg_with({exif_segment(3), exif_segment(8)})), 3);
}

TEST(ExifOrientation, IsUprightForFilesThatEndOrLieAnywhere) {
  const Bytes jpeg = jpeg_with({exif_segment(6)});
  for (size_t length = 0; length < jpeg.size(); ++length) {
    // Read from a copy without spare bytes, so that a sanitizer sees a step beyond the end.
    const int orientation = exif_orientation(Bytes(jpeg.begin(), jpeg.begin() + static_cast<int>(length)));
    EXPECT_TRUE(orientation == 1 || orientation == 6) << length << " bytes";
  }
  EXPECT_EQ(exif_orientation({}), 1);
  EXPECT_EQ(exif_orientation(testing::to_bytes("no image")), 1);
  EXPECT_EQ(exif_orientation(jpeg_with({segment_of(0xE1, testing::to_bytes("Exif"))})), 1);
  EXPECT_EQ(exif_orientation(jpeg_with({{0xFF, 0xE1, 0, 0}, exif_segment(6)})), 1) << "a length below 2";
}

}  // namespace
}  // namespace lockstep
