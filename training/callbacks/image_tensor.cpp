#include "lockstep/training/callbacks/image_tensor.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/png_encoder.h"

namespace lockstep {

std::vector<uint8_t> encode_image(const torch::Tensor& image) {
  if (image.dim() != 3 || (image.size(0) != 1 && image.size(0) != 3) || image.numel() == 0) {
    throw InvalidArgument(
        c10::str("[encode_image] expected an image of [1 or 3, height, width], but got ", image.sizes()));
  }
  const torch::NoGradGuard no_grad;
  auto pixels = image.cpu();
  if (pixels.scalar_type() != torch::kByte) {
    pixels = pixels.to(torch::kDouble).nan_to_num(0, 0, 0);
    const auto low = pixels.min(), range = pixels.max() - low;
    pixels = ((pixels - low) / range.clamp_min(1e-12) * 255).round().to(torch::kByte);
  }
  pixels = pixels.permute({1, 2, 0}).contiguous();
  return encode_png({pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())},
                    {.width = image.size(2), .height = image.size(1), .channels = image.size(0)});
}

}  // namespace lockstep
