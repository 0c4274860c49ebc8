#pragma once

#include <torch/types.h>

#include "lockstep/parameter_server/variables/update_rule.h"

namespace lockstep {

/// A gradient of some rows of a parameter, on the parameter's device.
struct RowGradient {
  torch::Tensor rows;    ///< int64, strictly ascending
  torch::Tensor values;  ///< [rows, ...], in the parameter's dtype
};

/// Of a sparse gradient, whose entries of the same row are added up. `optimizer` names who asks. Throws
/// std::invalid_argument for a gradient that is not sparse in its first dimension alone.
RowGradient row_gradient(const torch::Tensor& sparse, const char* optimizer);

// Steps of these rows alone, of the parameter and of what is remembered of it, tensors of its shape. On a CPU
// by the kernels that parameter servers have, and so with the same bits; else by operators of ATen.

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
