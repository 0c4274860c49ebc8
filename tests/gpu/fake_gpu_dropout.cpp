// The operators of dropout that LibTorch implements only for CUDA, by their definitions.
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>

namespace lockstep::fake_gpu {
namespace {

std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& input, double kept,
                                                 std::optional<at::Generator> generator) {
  const at::Tensor mask =
      at::empty_like(input, input.options().dtype(at::kByte)).bernoulli_(kept, std::move(generator));
  return {input * mask / kept, mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self * mask * scale;
}

/// Draws as the CPU does, from the CPU's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, at::kBool)};
  const auto [output, mask] = at::_fused_dropout(input, 1 - p);
  return {output, mask.to(at::kBool)};
}

// The fake GPU's fallback calls them on the CPU.
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_fused_dropout", &fused_dropout);
  library.impl("_masked_scale", &masked_scale);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("native_dropout", &native_dropout);
}

}  // namespace
}  // namespace lockstep::fake_gpu
