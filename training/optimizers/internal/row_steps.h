#pragma once

#include <torch/types.h>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// A gradient of some rows of a parameter, on the parameter's device.
struct RowGradient {
  torch::Tensor rows;    ///< int64, strictly ascending
  torch::Tensor values;  ///< [rows, ...], in the parameter's dtype
};

/// Converts a sparse gradient; sums entries of the same row. `optimizer` is the caller's name for error
/// messages. Throws std::invalid_argument unless the gradient is sparse in exactly its first dimension.
RowGradient row_gradient(const torch::Tensor& sparse, const char* optimizer);

// The functions below step only these rows of the parameter and of its state, tensors of its shape. On a CPU
// they use the parameter servers' kernels and so give the same bits; elsewhere they use operators of ATen.

void step_rows_by_adagrad(const torch::Tensor& parameter, const torch::Tensor& sum,
                          const RowGradient& gradient, double lr, double eps);

struct AdamTensors {
  torch::Tensor exp_avg;
  torch::Tensor exp_avg_sq;
};
/// At step `step`, 1 or more.
void step_rows_by_adam(const torch::Tensor& parameter, const AdamTensors& state, const RowGradient& gradient,
                       const AdamRule& rule, double lr, int64_t step);

}  // namespace lockstep
