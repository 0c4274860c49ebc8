#include "lockstep/datasets/images/internal/host_augmentation.h"

#include "lockstep/datasets/images/internal/pixels/colour_kernels.h"
#include "lockstep/datasets/images/internal/pixels/image_moves.h"

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
  const bool is_moved =
      rotates || change.row_shift != 0 || change.column_shift != 0 || change.is_mirrored != 0;
  if (rotates) {
    rotate_image(move, change);
  } else if (is_moved || !changes_colours) {
    shift_image(move, change);
  }
  if (!changes_colours) return;
  const float* moved = is_moved ? result : image;
  const int64_t pixels = height * width;
  const RgbScale scale{{mean[0], stddev[0]}, {mean[1], stddev[1]}, {mean[2], stddev[2]}};
  if (channels == 1) {
    colour_kernels().grey(change, scale.red, moved, result, pixels);
  } else if (is_interleaved) {
    colour_kernels().interleaved(change, scale, moved, result, pixels);
  } else {
    colour_kernels().planar(change, scale, moved, result, pixels);
  }
}

}  // namespace lockstep
