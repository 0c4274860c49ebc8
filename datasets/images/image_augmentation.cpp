#include "lockstep/datasets/images/image_augmentation.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>

namespace lockstep {
namespace {

constexpr auto kGamma = static_cast<int64_t>(0x9e3779b97f4a7c15U);

/// A right shift that fills in zeros; that of at::Tensor repeats the sign.
at::Tensor shift_right(const at::Tensor& bits, int64_t places) {
  return bits.bitwise_right_shift(places).bitwise_and_((int64_t{1} << (64 - places)) - 1);
}

/// SplitMix64's mixing function.
at::Tensor mixed(const at::Tensor& bits) {
  const at::Tensor once =
      bits.bitwise_xor(shift_right(bits, 30)).mul_(static_cast<int64_t>(0xbf58476d1ce4e5b9U));
  const at::Tensor twice =
      once.bitwise_xor(shift_right(once, 27)).mul_(static_cast<int64_t>(0x94d049bb133111ebU));
  return twice.bitwise_xor(shift_right(twice, 31));
}

/// Returns a number of 0 to count - 1 for each state; `draw` numbers the draws of a state.
at::Tensor draw_below(const at::Tensor& states, int64_t draw, int64_t count) {
  const auto step = static_cast<int64_t>(static_cast<uint64_t>(kGamma) * static_cast<uint64_t>(draw + 1));
  return shift_right(mixed(states + step), 32).mul_(count).bitwise_right_shift_(32);
}

}  // namespace

at::Tensor ImageAugmentation::operator()(const at::Tensor& images, const at::Tensor& indices,
                                         int64_t epoch) const {
  if (crop_padding < 0)
    throw std::invalid_argument(
        c10::str("[ImageAugmentation] crop_padding: expected 0 or more, but got ", crop_padding));
  if (images.dim() != 4 || indices.dim() != 1 || indices.size(0) != images.size(0) ||
      indices.scalar_type() != at::kLong || indices.device() != images.device()) {
    throw std::invalid_argument(
        c10::str("[ImageAugmentation] expected images [n, channels, height, width] and int64 indices [n] on "
                 "one device, "
                 "but got images ",
                 images.sizes(), " on ", images.device(), " and ", indices.scalar_type(), " indices ",
                 indices.sizes(), " on ", indices.device()));
  }
  if (crop_padding == 0 && !flip) return images;
  const torch::NoGradGuard no_grad;
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  const at::Tensor of_seed = mixed(at::full({1}, static_cast<int64_t>(seed), indices.options()));
  const at::Tensor of_epoch = mixed(of_seed + epoch);
  const at::Tensor states = mixed(of_epoch + indices).unsqueeze(1);

  at::Tensor rows = at::arange(height, indices.options()).unsqueeze(0).expand({images.size(0), -1});
  at::Tensor columns = at::arange(width, indices.options()).unsqueeze(0).expand({images.size(0), -1});
  if (flip) columns = at::where(draw_below(states, 0, 2).eq(1), width - 1 - columns, columns);
  if (crop_padding > 0) {
    rows = rows + draw_below(states, 1, 2 * crop_padding + 1) - crop_padding;
    columns = columns + draw_below(states, 2, 2 * crop_padding + 1) - crop_padding;
  }
  const at::Tensor numbers = at::arange(images.size(0), indices.options()).view({-1, 1, 1});
  const at::Tensor taken =
      images.permute({0, 2, 3, 1})
          .index({numbers, rows.clamp(0, height - 1).unsqueeze(2), columns.clamp(0, width - 1).unsqueeze(1)});
  const at::Tensor outside = rows.lt(0)
                                 .logical_or(rows.ge(height))
                                 .unsqueeze(2)
                                 .logical_or(columns.lt(0).logical_or(columns.ge(width)).unsqueeze(1));
  return taken.masked_fill(outside.unsqueeze(3), 0)
      .permute({0, 3, 1, 2})
      .contiguous(images.suggest_memory_format());
}

}  // namespace lockstep
