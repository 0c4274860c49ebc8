// Operators that LibTorch leaves to backends outside of it. The fallback calls those registered for the CPU
// here with views of the device's memory.
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/tests/device/test_device_memory.h"

namespace lockstep::test_device {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> output_mask) {
  const std::vector<c10::SymInt> bias_sizes{gradient.sym_size(1)};
  return at::convolution_backward_symint(gradient, input, weight, bias_sizes, stride, padding, dilation,
                                         transposed, output_padding, std::move(groups), output_mask);
}

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                             at::Tensor, at::Tensor, at::Tensor>;

/// Without dropout, so that there is no state of a generator to return.
Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& bias, double dropout, bool is_causal,
                    bool /*returns_mask*/, std::optional<double> scale) {
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, is_causal, bias, scale);
  return {output, logsumexp, {}, {}, query.sym_size(2), key.sym_size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, std::array<bool, 4> /*input_mask*/, const at::Tensor& output,
    const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/,
    c10::SymInt /*max_q*/, c10::SymInt /*max_k*/, double dropout, bool is_causal, const at::Tensor& /*seed*/,
    const at::Tensor& /*offset*/, std::optional<double> scale) {
  const auto given_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  auto [query_gradient, key_gradient, value_gradient] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, output, logsumexp,
                                                               dropout, is_causal, given_bias, scale);
  return {query_gradient, key_gradient, value_gradient, at::Tensor()};
}

/// Returns the implementation that the CPU would take.
int64_t attention_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  HostViews views;
  const auto mask_view = mask && mask->defined() ? std::optional(views.of(*mask)) : std::nullopt;
  const int64_t choice = at::_fused_sdp_choice(views.of(query), views.of(key), views.of(value), mask_view,
                                               dropout, is_causal, scale, enable_gqa);
  constexpr auto kFlash = static_cast<int64_t>(at::SDPBackend::flash_attention);
  return choice == kFlash ? static_cast<int64_t>(at::SDPBackend::overrideable) : choice;
}

/// Draws what at::dropout() draws on the CPU, and gives the same bits.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, at::kBool)};
  const at::Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  const at::Tensor mask = noise.to(at::kBool);
  return {input * at::Tensor(noise).div_(1 - p), mask};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("convolution_overrideable", &at::convolution_symint);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_dropout", &native_dropout);
}

}  // namespace
}  // namespace lockstep::test_device

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &lockstep::test_device::attention_choice)
}  // namespace at::native
