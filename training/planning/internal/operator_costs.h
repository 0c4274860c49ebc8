#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// Shapes of tensors.
using Shapes = std::vector<std::vector<int64_t>>;

/// Returns whether flops_of() knows the operator.
bool has_known_flops(std::string_view name);

/// Returns the floating-point operations of a matrix product, a convolution or a fused attention, forward or
/// backward: two for each multiplication and its addition, as PyTorch's FlopCounterMode counts them; causal
/// attention counts in full. 0 for other operators.
double flops_of(std::string_view name, c10::ArrayRef<c10::IValue> arguments, const Shapes& inputs,
                const Shapes& results);

}  // namespace lockstep
