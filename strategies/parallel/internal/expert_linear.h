#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Applies the linear layer of each expert to the rows of its own: `rows` [n, inputs] are those of one expert
/// after another, `counts` says how many each has. `weight` is [experts, outputs, inputs]; `bias` is
/// [experts, outputs], or undefined. Returns [n, outputs]. Experts without rows get gradients of zero.
///
/// Results and gradients are written where they belong in one tensor for all experts, unlike those of a
/// product for each, whose parts are copied together: the gradient of `weight` alone can be larger than all
/// rows.
at::Tensor expert_linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                         const std::vector<int64_t>& counts);

}  // namespace lockstep
