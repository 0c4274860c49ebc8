#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// The part of image preparation that runs in batches on the device that trains.
struct ImageTransform {
  /// Height and width of the result; 0 keeps the images' own. Images that are not square are stretched.
  int64_t image_size = 0;
  /// Channels of the result: 3, or 1 for grey images.
  int64_t channels = 3;
  /// Subtracted from, and then dividing, values in [0, 1]: one number for all channels, or one a channel.
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};

  /// Throws std::invalid_argument naming the field that no images could be transformed with.
  void check() const;

  /// Turns images [n, c, height, width] with values 0 ... 255, of any type and on any device, into float32
  /// [n, channels, image_size, image_size] on the same device: resized (bilinear with antialiasing, as
  /// torch's interpolate with antialias), grey repeated to 3 channels, and then (x / 255 - mean) / stddev.
  /// With 3 channels the result is in channels_last memory format, in which convolutions run fastest. n may
  /// be 0. Throws std::invalid_argument for images that are neither grey nor of `channels` channels.
  at::Tensor operator()(const at::Tensor& images) const;
};

/// The transform that a dataset's options ask for, checked.
template <typename Options>
ImageTransform make_transform(const Options& options) {
  ImageTransform transform{.image_size = options.image_size,
                           .channels = options.channels,
                           .mean = options.mean,
                           .stddev = options.stddev};
  transform.check();
  return transform;
}

/// Resizes images [n, c, any, any] to [n, c, height, width], bilinear with antialiasing.
at::Tensor resize_images(const at::Tensor& images, int64_t height, int64_t width);

}  // namespace lockstep
