#include "lockstep/training/optimizers/internal/row_steps.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <span>
#include <stdexcept>

#include "lockstep/parameter_server/shards/row_kernels.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"

namespace lockstep {
namespace {

bool has_kernels(const torch::Tensor& parameter) {
  return parameter.is_cpu() && parameter.is_contiguous() &&
         (parameter.scalar_type() == torch::kFloat || parameter.scalar_type() == torch::kDouble);
}

/// Calls `step(T(), batch)` for the parameter's element type.
template <typename Step>
void with_rows(const RowGradient& gradient, const Step& step) {
  const int64_t count = gradient.rows.numel();
  if (count == 0) return;
  const std::span<const int64_t> rows(gradient.rows.const_data_ptr<int64_t>(), static_cast<size_t>(count));
  const int64_t columns = gradient.values.numel() / count;
  if (gradient.values.scalar_type() == torch::kFloat) {
    step(float(), RowGradients<float>{rows, columns, gradient.values.const_data_ptr<float>()});
  } else {
    step(double(), RowGradients<double>{rows, columns, gradient.values.const_data_ptr<double>()});
  }
}

}  // namespace

RowGradient row_gradient(const torch::Tensor& sparse, const char* optimizer) {
  if (!sparse.is_sparse() || sparse.sparse_dim() != 1)
    throw std::invalid_argument(c10::str("[", optimizer,
                                         "] expected a gradient that is sparse in its rows, but got ",
                                         sparse.toString(), " of shape ", sparse.sizes()));
  const auto coalesced = coalesced_rows(sparse);
  return {coalesced.indices().squeeze(0).contiguous(), coalesced.values().contiguous()};
}

void step_rows_by_adagrad(const torch::Tensor& parameter, const torch::Tensor& sum,
                          const RowGradient& gradient, double lr, double eps) {
  if (has_kernels(parameter) && sum.is_contiguous()) {
    with_rows(gradient, [&](auto zero, const auto& batch) {
      using T = decltype(zero);
      update_rows_by_adagrad(parameter.data_ptr<T>(), sum.data_ptr<T>(), batch, static_cast<T>(lr),
                             static_cast<T>(eps));
    });
    return;
  }
  const auto& [rows, values] = gradient;
  const auto sums = sum.index_select(0, rows).addcmul_(values, values);
  sum.index_copy_(0, rows, sums);
  parameter.index_add_(0, rows, values / sums.sqrt().add_(eps), -lr);
}

void step_rows_by_adam(const torch::Tensor& parameter, const AdamTensors& state, const RowGradient& gradient,
                       const AdamRule& rule, double lr, int64_t step) {
  const torch::Tensor& first = state.exp_avg;
  const torch::Tensor& second = state.exp_avg_sq;
  const auto number = static_cast<double>(step);
  if (has_kernels(parameter) && first.is_contiguous() && second.is_contiguous()) {
    with_rows(gradient, [&](auto zero, const auto& batch) {
      using T = decltype(zero);
      update_rows_by_adam(parameter.data_ptr<T>(),
                          AdamMoments<T>{first.data_ptr<T>(), second.data_ptr<T>(), nullptr}, batch, rule, lr,
                          number);
    });
    return;
  }
  const auto& [rows, values] = gradient;
  const auto firsts = first.index_select(0, rows).mul_(rule.beta1).add_(values, 1 - rule.beta1);
  const auto seconds = second.index_select(0, rows).mul_(rule.beta2).addcmul_(values, values, 1 - rule.beta2);
  first.index_copy_(0, rows, firsts);
  second.index_copy_(0, rows, seconds);
  const double rate = lr / (1 - std::pow(rule.beta1, number));
  const double correction = std::sqrt(1 - std::pow(rule.beta2, number));
  parameter.index_add_(0, rows, firsts / seconds.sqrt().div_(correction).add_(rule.eps), -rate);
}

}  // namespace lockstep
