#pragma once

#include <array>
#include <cstdint>

#include "lockstep/datasets/images/internal/augmentation_draws.h"

namespace lockstep {

/// The images' shape, and the changes that apply to all of them.
struct HostAugmentation {
  int64_t channels = 0;  ///< 1 or 3
  int64_t height = 0;
  int64_t width = 0;
  bool has_channels_last = false;
  bool rotates = false;
  bool changes_colours = false;
  /// For each channel: values are (x - mean) / stddev.
  std::array<float, 3> mean{};
  std::array<float, 3> stddev{1, 1, 1};

  /// Writes one image. Both are contiguous, with channels first or last, and must not overlap.
  void change(const float* image, const ImageChange& change, float* result) const;
};

}  // namespace lockstep
