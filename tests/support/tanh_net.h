#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lockstep {

/// A small net in float64 whose output depends on all of its parameters: [n, 6] to [n, 3].
struct TanhNetImpl : public torch::nn::Cloneable<TanhNetImpl> {
  TanhNetImpl() { reset(); }

  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 5));
    second = register_module("second", torch::nn::Linear(5, 3));
    to(torch::kDouble);
  }

  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }

  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(TanhNet);

/// Copies on the CPU that training does not change.
inline std::vector<torch::Tensor> values_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> values;
  for (const auto& parameter : parameters)
    values.push_back(parameter.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true));
  return values;
}

/// The largest difference between two lists of tensors of the same shapes, on any devices; NaN if either has
/// a NaN.
inline double largest_difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  TORCH_CHECK(a.size() == b.size(), "lists of different lengths");
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto difference = (a[i].cpu() - b[i].cpu()).abs().max().item<double>();
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

/// Compares tensors of any devices. Unlike torch::equal, tells 0 from -0 and finds a NaN equal to itself.
inline bool bit_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].cpu().contiguous(), y = b[i].cpu().contiguous();
    if (x.scalar_type() != y.scalar_type() || x.sizes() != y.sizes()) return false;
    if (x.numel() > 0 && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) != 0) return false;
  }
  return true;
}

}  // namespace lockstep
