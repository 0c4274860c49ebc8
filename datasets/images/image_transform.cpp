#include "lockstep/datasets/images/image_transform.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "lockstep/datasets/images/internal/per_channel.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_invalid(const std::string& field, const std::string& expected,
                                const std::string& actual) {
  throw std::invalid_argument("[ImageTransform] " + field + ": expected " + expected + ", but got " + actual);
}

void check_statistic(const std::string& field, const std::vector<double>& values, int64_t channels) {
  const auto size = static_cast<int64_t>(values.size());
  if (size != 1 && size != channels) {
    throw_invalid(field, "1 or " + std::to_string(channels) + " values", std::to_string(size));
  }
}

bool all_equal(const std::vector<double>& values, double value) {
  return std::all_of(values.begin(), values.end(), [value](double other) { return other == value; });
}

void normalise_(at::Tensor& images, const std::vector<double>& mean, const std::vector<double>& stddev) {
  if (mean.size() > 1) {
    images.sub_(per_channel(mean, images));
  } else if (!all_equal(mean, 0.0)) {
    images.sub_(mean.front());
  }
  if (stddev.size() > 1) {
    images.div_(per_channel(stddev, images));
  } else if (!all_equal(stddev, 1.0)) {
    images.div_(stddev.front());
  }
}

}  // namespace

void ImageTransform::check() const {
  if (image_size < 0) throw_invalid("image_size", "0 or more", std::to_string(image_size));
  if (channels != 1 && channels != 3) throw_invalid("channels", "1 or 3", std::to_string(channels));
  check_statistic("mean", mean, channels);
  check_statistic("stddev", stddev, channels);
  for (const double value : stddev) {
    if (!(value > 0)) throw_invalid("stddev", "values above 0", std::to_string(value));
  }
}

at::Tensor ImageTransform::operator()(const at::Tensor& images) const {
  if (images.dim() != 4 || (images.size(1) != 1 && images.size(1) != channels)) {
    throw_invalid("images", "[n, 1 or " + std::to_string(channels) + ", height, width]",
                  c10::str(images.sizes()));
  }
  const torch::NoGradGuard no_grad;
  // Converts before the resize: CUDA cannot resize integers, and devices would round them differently.
  at::Tensor result = images.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (image_size != 0) result = resize_images(result, image_size, image_size);
  result.div_(255);

  // If all channels are normalised the same way, a grey image is normalised before it gets three channels.
  const bool expands = result.size(1) != channels;
  const bool one_for_all = mean.size() == 1 && stddev.size() == 1;
  if (!expands || one_for_all) normalise_(result, mean, stddev);
  if (expands) result = result.expand({-1, channels, -1, -1});
  if (channels == 3) result = result.contiguous(at::MemoryFormat::ChannelsLast);
  if (expands && !one_for_all) normalise_(result, mean, stddev);
  return result;
}

at::Tensor resize_images(const at::Tensor& images, int64_t height, int64_t width) {
  if (images.size(2) == height && images.size(3) == width) return images;
  // CUDA's kernel refuses a batch without images, which a replica's shard may be.
  if (images.size(0) == 0) return images.new_empty({0, images.size(1), height, width});
  return at::_upsample_bilinear2d_aa(images, {height, width}, /*align_corners=*/false);
}

}  // namespace lockstep
