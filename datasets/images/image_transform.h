#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// The part of image preparation that runs in batches on the training device.
struct ImageTransform {
  /// Height and width of the result; 0 keeps the images' own. Images that are not square are stretched.
  int64_t image_size = 0;
  /// Channels of the result: 3, or 1 for grey images.
  int64_t channels = 3;
  /// `mean` is subtracted from values in [0, 1], then they are divided by `stddev`. One number for all
  /// channels, or one per channel.
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};

  /// Throws std::invalid_argument naming a field that is out of range.
  void check() const;

  /// Converts images [n, c, height, width] with values 0 to 255, of any type and on any device, to float32
  /// [n, channels, image_size, image_size] on the same device. They are resized (bilinear with antialiasing,
  /// like torch's interpolate with antialias), grey is repeated to 3 channels, and the result is (x / 255 -
  /// mean) / stddev. With 3 channels the result is in channels_last memory format, in which convolutions are
  /// fastest. n may be 0. Throws std::invalid_argument if `c` is neither 1 nor `channels`.
  at::Tensor operator()(const at::Tensor& images) const;
};

/// Returns the transform that a dataset's options describe. Throws as ImageTransform::check().
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
