#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Random changes of training images, drawn for each example by (seed, epoch, index of the example) alone:
/// any number of replicas, any batch size and a resumed training draw the same. Each image is cropped,
/// mirrored, rotated and then changed in brightness, contrast, saturation and hue, in this order. Colours are
/// changed as torchvision's transforms of these names do, with values kept within black and white.
///
/// The draws are SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014),
/// computed on the host, which knows the indices, so that all devices get the same. The images are changed on
/// their own device. Thread-safe.
///
/// On the CPU, the pixels of an example are the same bits in every batch. On other devices, the mean that
/// `contrast` needs is rounded as the device's sum rounds it.
///
/// Example:
///
///     const ImageAugmentation augment{.crop_padding = 4, .flip = true, .seed = 1};
///     const auto changed = augment(images, indices, epoch);
struct ImageAugmentation {
  /// Black pixels put around an image before a piece of the image's own size is cut out at random.
  int64_t crop_padding = 0;
  /// Whether half of the images are mirrored left to right.
  bool flip = false;
  /// Rotates each image about its centre by an angle between -rotation and +rotation, in degrees, 0 to 180.
  /// Pixels are interpolated bilinearly; those from outside the image are black.
  double rotation = 0;
  /// Multiplies all values by a factor between 1 - brightness and 1 + brightness, but at least 0.
  double brightness = 0;
  /// Moves all values away from the mean of the grey image, or towards it, by such a factor.
  double contrast = 0;
  /// Moves colours away from the grey of the same pixel, or towards it, by such a factor. Grey images stay.
  double saturation = 0;
  /// Turns the hue by a part of the full circle between -hue and +hue, 0 to 0.5. Grey images stay.
  double hue = 0;
  /// The images' normalisation, as in ImageTransform: values are (x - mean) / stddev with x from 0, black, to
  /// 1. One number for all channels, or one per channel.
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
  uint64_t seed = 0;

  /// Throws std::invalid_argument naming a field that is out of range.
  void check() const;
  /// Returns whether any image may change.
  bool is_on() const;
  bool changes_colours() const;
  /// Returns all changes and their seed as text, such as "crop_padding 4, flip, seed 1".
  std::string describe() const;

  /// Draws the changes of these examples: float32 [n, 9] on the CPU, for apply().
  at::Tensor draw(c10::ArrayRef<size_t> indices, int64_t epoch) const;
  /// Returns the changed images, of the same shape and memory format. `images` is float32 [n, channels,
  /// height, width], `draws` are of draw() for n examples, on the images' device. On the CPU, images are
  /// spread over as many threads as ATen's operators use. Throws std::invalid_argument for other shapes,
  /// types and devices, and as check().
  at::Tensor apply(const at::Tensor& images, const at::Tensor& draws) const;
  /// Draws and applies: `indices` holds each image's index in its dataset. The host does not wait for the
  /// images' device, except for the copy of the draws. Throws as apply().
  at::Tensor operator()(const at::Tensor& images, c10::ArrayRef<size_t> indices, int64_t epoch) const;
};

}  // namespace lockstep
