#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// Random changes of training images, drawn for each example by (seed, epoch, index of the example) alone:
/// any number of replicas, any batch size and a resumed training draw the same. The draws are SplitMix64
/// (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014), computed on the images'
/// device; the host waits for nothing. Thread-safe.
///
/// Example:
///
///     const ImageAugmentation augment{.crop_padding = 4, .flip = true, .seed = 1};
///     const auto changed = augment(images, indices, epoch);
struct ImageAugmentation {
  /// Pixels of value 0 put around an image before a piece of the image's own size is cut out at random.
  int64_t crop_padding = 0;
  /// Whether half of the images are mirrored left to right.
  bool flip = false;
  uint64_t seed = 0;

  /// Returns the changed images, of the same shape, type and device. `images` is [n, channels, height,
  /// width]; `indices`, int64 [n] on the same device, holds each example's index in its dataset. Throws
  /// std::invalid_argument for other shapes, types and devices and for a negative padding.
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& indices, int64_t epoch) const;
};

}  // namespace lockstep
