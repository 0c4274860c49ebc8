#include "lockstep/training/callbacks/image_tensor.h"

#include <gtest/gtest.h>

#include "lockstep/datasets/images/internal/png_decoder.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

TEST(EncodeImage, KeepsBytesAndTheOrderOfChannels) {
  const auto image = torch::arange(2 * 4 * 3, torch::kByte).reshape({3, 2, 4});
  const auto decoded = decode_png(encode_image(image), "test");
  ASSERT_EQ(decoded.height, 2);
  ASSERT_EQ(decoded.width, 4);
  ASSERT_EQ(decoded.channels, 3);
  for (int64_t y = 0; y < 2; ++y) {
    for (int64_t x = 0; x < 4; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(decoded.pixels[static_cast<size_t>((y * 4 + x) * 3 + c)], image[c][y][x].item<uint8_t>());
    }
  }
}

TEST(EncodeImage, StretchesFloatingPointValues) {
  const auto decoded = decode_png(encode_image(torch::tensor({{{-1.0, 0.0, 1.0}}})), "test");
  EXPECT_EQ(decoded.pixels, (std::vector<uint8_t>{0, 128, 255}));
  const auto flat = decode_png(encode_image(torch::full({1, 1, 2}, 7.0)), "test");
  EXPECT_EQ(flat.pixels, (std::vector<uint8_t>{0, 0}));
}

TEST(EncodeImage, RefusesWhatIsNoImage) {
  EXPECT_THROW(encode_image(torch::zeros({2, 2})), InvalidArgument);
  EXPECT_THROW(encode_image(torch::zeros({2, 4, 4})), InvalidArgument);
  EXPECT_THROW(encode_image(torch::zeros({1, 0, 4})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
