#include "lockstep/datasets/images/internal/device_augmentation.h"

#include <torch/types.h>

#include <cstdint>

#include "lockstep/datasets/images/internal/per_channel.h"

namespace lockstep {
namespace {

/// Returns a column of the draws, [n, 1].
at::Tensor column(const at::Tensor& draws, int64_t number) {
  return draws.narrow(1, number, 1);
}

/// The columns of the draws, in the order of ImageChange.
enum Column : int64_t {
  kRowShift,
  kColumnShift,
  kIsMirrored,
  kCosine,
  kSine,
  kBrightness,
  kContrast,
  kSaturation,
  kHue
};

at::Tensor shift(const at::Tensor& images, const at::Tensor& draws, const at::Tensor& black) {
  const int64_t height = images.size(2), width = images.size(3);
  const auto options = draws.options().dtype(at::kLong);
  const at::Tensor rows = at::arange(height, options).unsqueeze(0) + column(draws, kRowShift).to(at::kLong);
  const at::Tensor ascending = at::arange(width, options).unsqueeze(0);
  const at::Tensor columns = at::where(column(draws, kIsMirrored).eq(1), width - 1 - ascending, ascending) +
                             column(draws, kColumnShift).to(at::kLong);
  const at::Tensor numbers = at::arange(images.size(0), options).view({-1, 1, 1});
  const at::Tensor taken =
      images.permute({0, 2, 3, 1})
          .index({numbers, rows.clamp(0, height - 1).unsqueeze(2), columns.clamp(0, width - 1).unsqueeze(1)})
          .permute({0, 3, 1, 2});
  const at::Tensor outside = rows.lt(0)
                                 .logical_or(rows.ge(height))
                                 .unsqueeze(2)
                                 .logical_or(columns.lt(0).logical_or(columns.ge(width)).unsqueeze(1));
  return at::where(outside.unsqueeze(1), black, taken);
}

at::Tensor rotate(const at::Tensor& images, const at::Tensor& draws, const at::Tensor& black) {
  const auto height = static_cast<double>(images.size(2)), width = static_cast<double>(images.size(3));
  const at::Tensor cosine = column(draws, kCosine), sine = column(draws, kSine);
  const at::Tensor zero = at::zeros_like(cosine);
  // affine_grid measures from the centre, in halves of the image's width and height.
  const at::Tensor theta = at::stack({at::cat({cosine, sine * (-height / width), zero}, 1),
                                      at::cat({sine * (width / height), cosine, zero}, 1)},
                                     1);
  const at::Tensor grid = at::affine_grid_generator(theta, images.sizes(), /*align_corners=*/false);
  return at::grid_sampler_2d(images - black, grid, /*interpolation_mode=*/0, /*padding_mode=*/0,
                             /*align_corners=*/false) +
         black;
}

at::Tensor grey_of(const at::Tensor& images) {
  if (images.size(1) == 1) return images;
  return images.narrow(1, 0, 1) * 0.2989 + images.narrow(1, 1, 1) * 0.587 + images.narrow(1, 2, 1) * 0.114;
}

at::Tensor blend(const at::Tensor& images, const at::Tensor& with, const at::Tensor& factor) {
  return (images * factor + with * (1 - factor)).clamp_(0, 1);
}

/// As with_hue() of HostAugmentation.
at::Tensor turn_hue(const at::Tensor& images, const at::Tensor& turn) {
  const at::Tensor most = images.amax(1, /*keepdim=*/true);
  const at::Tensor range = most - images.amin(1, /*keepdim=*/true);
  const at::Tensor red = images.narrow(1, 0, 1), green = images.narrow(1, 1, 1),
                   blue = images.narrow(1, 2, 1);
  const at::Tensor divisor = at::where(range.eq(0), at::ones_like(range), range);
  const at::Tensor sixths =
      at::where(most.eq(red), (green - blue) / divisor,
                at::where(most.eq(green), 2 + (blue - red) / divisor, 4 + (red - green) / divisor)) +
      turn * 6;
  const auto channel = [&](int64_t shift) {
    const at::Tensor k = (sixths + shift).remainder(6);
    return most - range * at::minimum(k, 4 - k).clamp(0, 1);
  };
  return at::cat({channel(5), channel(3), channel(1)}, 1);
}

at::Tensor change_colours(const ImageAugmentation& augmentation, const at::Tensor& images,
                          const at::Tensor& draws) {
  const at::Tensor mean = per_channel(augmentation.mean, images);
  const at::Tensor stddev = per_channel(augmentation.stddev, images);
  const auto factor = [&](Column number) { return column(draws, number).view({-1, 1, 1, 1}); };
  at::Tensor result = ((images * stddev + mean) * factor(kBrightness)).clamp_(0, 1);
  result = blend(result, grey_of(result).mean({1, 2, 3}, /*keepdim=*/true), factor(kContrast));
  if (images.size(1) == 3) {
    result = blend(result, grey_of(result), factor(kSaturation));
    if (augmentation.hue > 0) result = turn_hue(result, factor(kHue));
  }
  return (result - mean) / stddev;
}

}  // namespace

at::Tensor augment_by_tensors(const ImageAugmentation& augmentation, const at::Tensor& images,
                              const at::Tensor& draws) {
  const at::Tensor black = -per_channel(augmentation.mean, images) / per_channel(augmentation.stddev, images);
  at::Tensor result = images;
  if (augmentation.crop_padding > 0 || augmentation.flip) result = shift(result, draws, black);
  if (augmentation.rotation > 0) result = rotate(result, draws, black);
  // Saturation and hue do not change images with one channel, which are grey.
  const bool changes_colours = images.size(1) == 1 ? augmentation.brightness > 0 || augmentation.contrast > 0
                                                   : augmentation.changes_colours();
  if (changes_colours) result = change_colours(augmentation, result, draws);
  return result.contiguous(images.suggest_memory_format());
}

}  // namespace lockstep
