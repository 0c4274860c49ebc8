#pragma once

#include <cstdint>

#include "lockstep/datasets/images/internal/augmentation_draws.h"

namespace lockstep {

/// An image that is moved, and where it is moved to. Both are contiguous and do not overlap.
struct ImageMove {
  const float* image;
  float* result;
  const float* black;  ///< a pixel: a value of each channel
  int64_t channels;    ///< 1 or 3
  int64_t height;
  int64_t width;
  bool is_interleaved;  ///< whether the channels of a pixel lie side by side
};

/// Crops and mirrors.
void shift_image(const ImageMove& move, const ImageChange& change);

/// Crops, mirrors and rotates. Interpolates between pixels of the cropped image, whose surroundings are
/// black.
void rotate_image(const ImageMove& move, const ImageChange& change);

}  // namespace lockstep
