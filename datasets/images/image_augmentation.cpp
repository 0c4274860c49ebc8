#include "lockstep/datasets/images/image_augmentation.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <sstream>
#include <stdexcept>

#include "lockstep/datasets/images/internal/augmentation_draws.h"
#include "lockstep/datasets/images/internal/device_augmentation.h"
#include "lockstep/datasets/images/internal/for_each_image.h"
#include "lockstep/datasets/images/internal/host_augmentation.h"
#include "lockstep/datasets/images/internal/shortest_text.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_invalid(const char* field, const char* expected, double actual) {
  throw std::invalid_argument(
      c10::str("[ImageAugmentation] ", field, ": expected ", expected, ", but got ", actual));
}

void check_most(const char* field, double value, double most) {
  if (value >= 0 && value <= most) return;
  throw std::invalid_argument(
      c10::str("[ImageAugmentation] ", field, ": expected 0 to ", most, ", but got ", value));
}

void check_factor(const char* field, double value) {
  if (!(value >= 0) || !std::isfinite(value)) throw_invalid(field, "a number of 0 or more", value);
}

/// One for all channels, or one for each.
bool fits(const std::vector<double>& values, int64_t channels) {
  return values.size() == 1 || static_cast<int64_t>(values.size()) == channels;
}

void check_arguments(const ImageAugmentation& augmentation, const at::Tensor& images,
                     const at::Tensor& draws) {
  if (images.dim() != 4 || (images.size(1) != 1 && images.size(1) != 3) ||
      images.scalar_type() != at::kFloat) {
    throw std::invalid_argument(
        c10::str("[ImageAugmentation] expected float32 images [n, 1 or 3, height, width], but got ",
                 images.scalar_type(), " ", images.sizes()));
  }
  if (draws.sizes() != at::IntArrayRef({images.size(0), kChangeColumns}) ||
      draws.scalar_type() != at::kFloat || draws.device() != images.device()) {
    throw std::invalid_argument(c10::str("[ImageAugmentation] expected float32 draws [", images.size(0), ", ",
                                         kChangeColumns, "] on ", images.device(), ", but got ",
                                         draws.scalar_type(), " ", draws.sizes(), " on ", draws.device()));
  }
  if (!fits(augmentation.mean, images.size(1)) || !fits(augmentation.stddev, images.size(1))) {
    throw std::invalid_argument(c10::str(
        "[ImageAugmentation] expected a mean and stddev for all channels, "
        "or one for each of ",
        images.size(1), ", but got ", augmentation.mean.size(), " and ", augmentation.stddev.size()));
  }
}

/// Saturation and hue do not change images with one channel, which are grey.
bool changes_colours_of(const ImageAugmentation& augmentation, int64_t channels) {
  return channels == 1 ? augmentation.brightness > 0 || augmentation.contrast > 0
                       : augmentation.changes_colours();
}

std::array<float, 3> for_three(const std::vector<double>& values) {
  std::array<float, 3> result{};
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(values[std::min(i, values.size() - 1)]);
  return result;
}

at::Tensor augment_on_host(const ImageAugmentation& augmentation, const at::Tensor& images,
                           const at::Tensor& draws) {
  const auto format = images.suggest_memory_format();
  const at::Tensor from = images.contiguous(format), changes = draws.contiguous();
  at::Tensor to = at::empty_like(from, from.options(), format);
  const HostAugmentation all{.channels = images.size(1),
                             .height = images.size(2),
                             .width = images.size(3),
                             .has_channels_last = format == at::MemoryFormat::ChannelsLast,
                             .rotates = augmentation.rotation > 0,
                             .changes_colours = changes_colours_of(augmentation, images.size(1)),
                             .mean = for_three(augmentation.mean),
                             .stddev = for_three(augmentation.stddev)};
  const int64_t values = images.numel() / images.size(0);
  const auto* image = from.const_data_ptr<float>();
  const auto* columns = changes.const_data_ptr<float>();
  auto* result = to.mutable_data_ptr<float>();
  constexpr int64_t kValuesOfAThread = 16384;
  for_each_image(images.size(0), values, kValuesOfAThread, [&](int64_t i) {
    ImageChange change;
    std::memcpy(static_cast<void*>(&change), columns + i * kChangeColumns, sizeof change);
    all.change(image + i * values, change, result + i * values);
  });
  return to;
}

constexpr int64_t kMostPadding = int64_t{1} << 20;

}  // namespace

void ImageAugmentation::check() const {
  // Shifts are whole numbers of type float.
  if (crop_padding < 0 || crop_padding > kMostPadding)
    throw_invalid("crop_padding", "0 to 1048576", static_cast<double>(crop_padding));
  check_most("rotation", rotation, 180);
  check_factor("brightness", brightness);
  check_factor("contrast", contrast);
  check_factor("saturation", saturation);
  check_most("hue", hue, 0.5);
  if (mean.empty() || stddev.empty())
    throw std::invalid_argument("[ImageAugmentation] expected a mean and a stddev, but got none");
  for (const double value : stddev) {
    if (!(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value)))
      throw_invalid("stddev", "finite values above 0", value);
  }
  for (const double value : mean) {
    if (!std::isfinite(static_cast<float>(value))) throw_invalid("mean", "finite values", value);
  }
}

bool ImageAugmentation::changes_colours() const {
  return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0;
}

bool ImageAugmentation::is_on() const {
  return crop_padding > 0 || flip || rotation > 0 || changes_colours();
}

std::string ImageAugmentation::describe() const {
  std::ostringstream text;
  if (crop_padding > 0) text << "crop_padding " << crop_padding << ", ";
  if (flip) text << "flip, ";
  if (rotation > 0) text << "rotation " << shortest_text(rotation) << ", ";
  if (brightness > 0) text << "brightness " << shortest_text(brightness) << ", ";
  if (contrast > 0) text << "contrast " << shortest_text(contrast) << ", ";
  if (saturation > 0) text << "saturation " << shortest_text(saturation) << ", ";
  if (hue > 0) text << "hue " << shortest_text(hue) << ", ";
  text << "mean";
  for (const double value : mean) text << ' ' << shortest_text(value);
  text << ", stddev";
  for (const double value : stddev) text << ' ' << shortest_text(value);
  text << ", seed " << seed;
  return text.str();
}

at::Tensor ImageAugmentation::draw(c10::ArrayRef<size_t> indices, int64_t epoch) const {
  at::Tensor draws = at::empty({static_cast<int64_t>(indices.size()), kChangeColumns}, at::kFloat);
  auto* row = draws.mutable_data_ptr<float>();
  for (const size_t index : indices) {
    const ExampleDraws of_example(seed, epoch, index);
    const auto factor = [&](int number, double most) {
      return static_cast<float>(of_example.between(number, std::max(0.0, 1 - most), 1 + most));
    };
    const auto shift = [&](int number) {
      return static_cast<float>(of_example.below(number, 2 * crop_padding + 1) - crop_padding);
    };
    const double angle =
        of_example.between(DrawNumbers::kAngle, -rotation, rotation) / 180 * std::numbers::pi;
    const ImageChange change{
        .row_shift = shift(DrawNumbers::kRows),
        .column_shift = shift(DrawNumbers::kColumns),
        .is_mirrored = flip ? static_cast<float>(of_example.below(DrawNumbers::kFlip, 2)) : 0,
        .cosine = static_cast<float>(std::cos(angle)),
        .sine = static_cast<float>(std::sin(angle)),
        .brightness = factor(DrawNumbers::kBrightness, brightness),
        .contrast = factor(DrawNumbers::kContrast, contrast),
        .saturation = factor(DrawNumbers::kSaturation, saturation),
        .hue = static_cast<float>(of_example.between(DrawNumbers::kHue, -hue, hue))};
    std::memcpy(row, &change, sizeof change);
    row += kChangeColumns;
  }
  return draws;
}

at::Tensor ImageAugmentation::apply(const at::Tensor& images, const at::Tensor& draws) const {
  check();
  check_arguments(*this, images, draws);
  if (!is_on() || images.numel() == 0) return images;
  const torch::NoGradGuard no_grad;
  return images.is_cpu() ? augment_on_host(*this, images, draws) : augment_by_tensors(*this, images, draws);
}

at::Tensor ImageAugmentation::operator()(const at::Tensor& images, c10::ArrayRef<size_t> indices,
                                         int64_t epoch) const {
  check();
  return apply(images, draw(indices, epoch).to(images.device(), /*non_blocking=*/true));
}

}  // namespace lockstep
