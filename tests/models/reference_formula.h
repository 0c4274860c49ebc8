#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <string>

// The weights and inputs behind torchvision_reference.inc; make_torchvision_reference.py holds the same
// formula.

namespace lockstep {

constexpr uint32_t kInputOrdinal = 1'000'000;
constexpr uint32_t kDigestOrdinal = 2'000'000;
constexpr uint32_t kLossOrdinal = 3'000'000;

/// float64 values in [-1, 1), a hash of ordinal and row-major index.
inline torch::Tensor formula(uint32_t ordinal, torch::IntArrayRef shape) {
  auto values = torch::empty(shape, torch::kFloat64);
  auto* value = values.data_ptr<double>();
  for (int64_t index = 0; index < values.numel(); ++index) {
    uint32_t x = static_cast<uint32_t>(index) * 2654435761U + ordinal * 40503U + 1U;
    x = (x ^ (x >> 15)) * 2246822519U;
    x = (x ^ (x >> 13)) * 3266489917U;
    x ^= x >> 16;
    value[index] = x / 2147483648.0 - 1.0;
  }
  return values;
}

/// Returns the values of a parameter or buffer at place `ordinal` of the state_dict.
inline torch::Tensor state_formula(uint32_t ordinal, const std::string& name, const torch::Tensor& tensor) {
  const auto value = formula(ordinal, tensor.sizes());
  if (name.ends_with("running_var")) return 1.0 + 0.5 * value;
  if (tensor.dim() == 4) return value * std::sqrt(6.0 / tensor[0].numel());
  if (tensor.dim() == 2) return value * 0.005;
  return name.ends_with("weight") ? 1.0 + 0.25 * value : 0.25 * value;
}

/// One number for a tensor: the sum of its elements times a tensor of the formula.
inline double digest(const torch::Tensor& tensor) {
  return (tensor.to(torch::kFloat64) * formula(kDigestOrdinal, tensor.sizes())).sum().item<double>();
}

}  // namespace lockstep
