// Batch normalisation on CUDA, using the operators that LibTorch has for this purpose.
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "lockstep/strategies/nn/internal/batch_norm_kernels.h"

namespace lockstep::batch_norm::cuda {
namespace {

/// With an empty first replica, the operator would compute 0 / 0. This count is negligible compared with 1.
constexpr double kNearlyNone = 1e-30;

}  // namespace

at::Tensor local_statistics(const at::Tensor& input, double eps) {
  const int64_t channels = input.size(1);
  const auto wide = input.options().dtype(input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (input.numel() == 0) {
    // combine() divides by the inverse standard deviation.
    return at::cat({at::zeros({channels}, wide), at::full({channels}, 1, wide), at::zeros({1}, wide)});
  }
  const auto [mean, invstd] = at::batch_norm_stats(input, eps);
  return at::cat({mean, invstd, at::full({1}, count_of(input), wide)});
}

Statistics combine(const at::Tensor& gathered, const at::Tensor& input, const RunningStatistics& running,
                   double eps) {
  const int64_t channels = input.size(1);
  const at::Tensor counts = gathered.select(1, 2 * channels);
  // The operator computes in the dtype of the running statistics, which might not hold the counts.
  const auto dtype = gathered.scalar_type();
  const at::Tensor running_mean = running.mean.defined() ? running.mean.to(dtype) : at::Tensor();
  const at::Tensor running_var = running.var.defined() ? running.var.to(dtype) : at::Tensor();
  const auto [mean, invstd] = at::batch_norm_gather_stats_with_counts(
      gathered, gathered.narrow(1, 0, channels).contiguous(),
      gathered.narrow(1, channels, channels).contiguous(), running_mean, running_var, running.momentum, eps,
      counts.clamp_min(kNearlyNone).contiguous());
  if (running.mean.defined() && running.mean.scalar_type() != dtype) {
    running.mean.copy_(running_mean);
    running.var.copy_(running_var);
  }
  return {mean, {}, invstd, counts.to(at::kInt)};
}

at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps) {
  return at::batch_norm_elemt(input, weight, bias, statistics.mean, statistics.invstd, eps);
}

Sums local_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                const Statistics& statistics) {
  auto [sum_dy, sum_dy_xmu, weight_gradient, bias_gradient] =
      at::batch_norm_backward_reduce(gradient, input, statistics.mean, statistics.invstd, weight,
                                     /*input_g=*/true, weight.defined(), weight.defined());
  return {at::stack({sum_dy, sum_dy_xmu}), weight_gradient, bias_gradient};
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                          const Statistics& statistics, const at::Tensor& shared) {
  return at::batch_norm_backward_elemt(gradient, input, statistics.mean, statistics.invstd, weight, shared[0],
                                       shared[1], statistics.counts);
}

}  // namespace lockstep::batch_norm::cuda
