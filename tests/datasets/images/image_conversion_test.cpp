#include "lockstep/datasets/images/internal/image_conversion.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::make_image;

torch::Tensor to_tensor(const DecodedImage& image) {
  return torch::tensor(at::ArrayRef<uint8_t>(image.pixels))
      .view({image.height, image.width, image.channels})
      .permute({2, 0, 1})
      .unsqueeze(0);
}

Bytes convert(const DecodedImage& image, const ImageLayout& layout) {
  Bytes out(layout.bytes());
  convert_image(image, layout, out.data());
  return out;
}

TEST(ImageConversion, ResizesLikeAtenWithinRounding) {
  struct Case {
    int64_t height, width, new_height, new_width;
  };
  for (const Case& c : {Case{28, 28, 64, 64}, Case{50, 31, 17, 12}, Case{5, 40, 9, 9}, Case{1, 1, 4, 3},
                        Case{30, 30, 1, 2}}) {
    for (const int64_t channels : {1, 3}) {
      const DecodedImage image = make_image(c.height, c.width, channels, 3);
      const torch::Tensor ours = to_tensor(resize(image, c.new_height, c.new_width)).to(torch::kFloat);
      const torch::Tensor expected =
          at::_upsample_bilinear2d_aa(to_tensor(image).to(torch::kFloat), {c.new_height, c.new_width}, false);
      // Half a step from rounding to whole values, plus the rounding of float32.
      EXPECT_LE((ours - expected).abs().max().item<float>(), 0.501F)
          << c.height << " x " << c.width << " to " << c.new_height << " x " << c.new_width;
    }
  }
}

TEST(ImageConversion, KeepsAConstantImageConstant) {
  const DecodedImage image{.height = 7, .width = 9, .channels = 1, .pixels = Bytes(63, 200)};
  EXPECT_EQ(resize(image, 20, 4).pixels, Bytes(80, 200));
}

TEST(ImageConversion, RepeatsGreyAndWeighsColours) {
  const DecodedImage grey{.height = 1, .width = 2, .channels = 1, .pixels = {5, 250}};
  EXPECT_EQ(convert(grey, {3, 1, 2}), (Bytes{5, 5, 5, 250, 250, 250}));
  // 0.299 * 255 = 76.2, 0.587 * 255 = 149.7, 0.114 * 255 = 29.1.
  const DecodedImage colours{
      .height = 1, .width = 4, .channels = 3, .pixels = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}};
  EXPECT_EQ(convert(colours, {1, 1, 4}), (Bytes{76, 150, 29, 255}));
}

}  // namespace
}  // namespace lockstep
