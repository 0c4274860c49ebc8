#include "lockstep/datasets/images/internal/host_augmentation.h"

#include "lockstep/datasets/images/internal/colour_kernels.h"
#include "lockstep/datasets/images/internal/image_moves.h"

namespace lockstep {

void HostAugmentation::change(const float* image, const ImageChange& change, float* result) const {
  std::array<float, 3> black{};
  for (size_t i = 0; i < black.size(); ++i) black[i] = -mean[i] / stddev[i];
  const bool is_interleaved = channels == 1 || has_channels_last;
  const ImageMove move{.image = image,
                       .result = result,
                       .black = black.data(),
                       .channels = channels,
                       .height = height,
                       .width = width,
                       .is_interleaved = is_interleaved};
  if (rotates) {
    rotate_image(move, change);
  } else {
    shift_image(move, change);
  }
  if (!changes_colours) return;
  const int64_t pixels = height * width;
  const RgbScale scale{{mean[0], stddev[0]}, {mean[1], stddev[1]}, {mean[2], stddev[2]}};
  if (channels == 1) {
    colour_kernels().grey(change, scale.red, result, pixels);
  } else if (is_interleaved) {
    colour_kernels().interleaved(change, scale, result, pixels);
  } else {
    colour_kernels().planar(change, scale, result, pixels);
  }
}

}  // namespace lockstep
