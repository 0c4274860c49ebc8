#include "lockstep/datasets/images/mixup.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>

#include "lockstep/datasets/images/internal/augmentation_draws.h"
#include "lockstep/datasets/images/internal/for_each_image.h"
#include "lockstep/datasets/images/internal/pixels/mix_values.h"
#include "lockstep/datasets/images/internal/shortest_text.h"

namespace lockstep {
namespace {

bool is_float_on_cpu(const at::Tensor& values) {
  return values.is_cpu() && values.scalar_type() == at::kFloat;
}

/// In one pass over the memory.
at::Tensor mixed_on_host(const at::Tensor& data, const at::Tensor& partners, const at::Tensor& weights) {
  const auto format = data.suggest_memory_format();
  const at::Tensor own = data.contiguous(format), others = partners.contiguous(format),
                   of_each = weights.contiguous();
  at::Tensor mixed = at::empty_like(own, own.options(), format);
  const int64_t count = weights.numel(), values = count == 0 ? 0 : own.numel() / count;
  const auto* from = own.const_data_ptr<float>();
  const auto* other = others.const_data_ptr<float>();
  const auto* weight = of_each.const_data_ptr<float>();
  auto* to = mixed.mutable_data_ptr<float>();
  constexpr int64_t kValuesOfAThread = 32768;
  for_each_image(count, values, kValuesOfAThread, [&](int64_t i) {
    mix_values(from + i * values, other + i * values, weight[i], values, to + i * values);
  });
  return mixed;
}

/// Sums of products, whose rounding does not depend on the number of examples. Types shorter than float are
/// rounded once, at the end.
at::Tensor mixed_data(const at::Tensor& data, const at::Tensor& partners, const at::Tensor& weights) {
  if (is_float_on_cpu(data) && is_float_on_cpu(partners) && is_float_on_cpu(weights))
    return mixed_on_host(data, partners, weights);
  std::vector<int64_t> broadcast(static_cast<size_t>(data.dim()), 1);
  broadcast.front() = weights.numel();
  const auto of_each = weights.view(broadcast);
  const at::Tensor mixed = (data * of_each).add_(partners * (1 - of_each));
  return at::isFloatingType(data.scalar_type()) ? mixed.to(data.scalar_type()) : mixed;
}

at::Tensor mixed_targets(const at::Tensor& targets, const at::Tensor& partners, const at::Tensor& weights,
                         int64_t num_classes) {
  const at::Tensor weight = weights.unsqueeze(1), rest = 1 - weight;
  if (targets.is_cpu() && partners.is_cpu() && weights.is_cpu()) {
    return at::zeros({weights.numel(), num_classes}, weights.options())
        .scatter_(1, targets.unsqueeze(1), weight)
        .scatter_add_(1, partners.unsqueeze(1), rest);
  }
  // On other devices, targets that are no classes must not write beyond the result.
  const auto classes = at::arange(num_classes, targets.options()).unsqueeze(0);
  const auto share = [&](const at::Tensor& of, const at::Tensor& shares) {
    return of.unsqueeze(1).eq(classes) * shares;
  };
  return share(targets, weight).add_(share(partners, rest));
}

}  // namespace

void Mixup::check() const {
  // Numbers of Beta(alpha, alpha) with smaller ones are 0 and 1, and with larger ones 0.5.
  if (alpha != 0 && !(alpha >= 1e-6 && alpha <= 1e6))
    throw std::invalid_argument(c10::str("[Mixup] alpha: expected 0, or 1e-6 to 1e6, but got ", alpha));
  if (is_on() && num_classes < 1)
    throw std::invalid_argument(c10::str("[Mixup] num_classes: expected 1 or more, but got ", num_classes));
}

std::string Mixup::describe() const {
  return c10::str("mixup ", shortest_text(alpha), " of ", num_classes, " classes, seed ", seed);
}

std::vector<size_t> Mixup::partners(c10::ArrayRef<size_t> indices, int64_t epoch, size_t dataset_size) const {
  if (dataset_size == 0 && !indices.empty())
    throw std::invalid_argument("[Mixup] dataset_size: expected 1 or more, but got 0");
  std::vector<size_t> partners;
  partners.reserve(indices.size());
  for (const size_t index : indices) {
    partners.push_back(static_cast<size_t>(
        ExampleDraws(seed, epoch, index).below(DrawNumbers::kPartner, static_cast<int64_t>(dataset_size))));
  }
  return partners;
}

at::Tensor Mixup::weights(c10::ArrayRef<size_t> indices, int64_t epoch) const {
  check();
  at::Tensor weights = at::empty({static_cast<int64_t>(indices.size())}, at::kFloat);
  auto* weight = weights.mutable_data_ptr<float>();
  for (const size_t index : indices)
    *weight++ = static_cast<float>(ExampleDraws(seed, epoch, index).beta(DrawNumbers::kMixup, alpha));
  return weights;
}

torch::data::Example<> Mixup::mix(const torch::data::Example<>& examples,
                                  const torch::data::Example<>& partners, const at::Tensor& weights) const {
  check();
  const auto count = weights.numel();
  const auto fits = [&](const torch::data::Example<>& some) {
    return some.data.sizes() == examples.data.sizes() && some.data.dim() > 0 && some.data.size(0) == count &&
           some.target.sizes() == at::IntArrayRef({count}) && some.target.scalar_type() == at::kLong;
  };
  if (weights.dim() != 1 || !fits(examples) || !fits(partners)) {
    throw std::invalid_argument(c10::str(
        "[Mixup] expected weights [n], data [n, ...] and int64 targets [n] of examples and partners, "
        "but got weights ",
        weights.sizes(), ", data ", examples.data.sizes(), " and ", partners.data.sizes(), ", and targets ",
        examples.target.sizes(), " and ", partners.target.sizes()));
  }
  // A device's targets are not looked at, as the host would wait for them.
  for (const at::Tensor& targets : {examples.target, partners.target}) {
    if (!targets.is_cpu() || count == 0) continue;
    if (targets.min().item<int64_t>() < 0 || targets.max().item<int64_t>() >= num_classes)
      throw std::invalid_argument(c10::str("[Mixup] expected targets from 0 to ", num_classes - 1,
                                           ", but got ", targets.min().item<int64_t>(), " to ",
                                           targets.max().item<int64_t>()));
  }
  const torch::NoGradGuard no_grad;
  return {mixed_data(examples.data, partners.data, weights),
          mixed_targets(examples.target, partners.target, weights, num_classes)};
}

}  // namespace lockstep
