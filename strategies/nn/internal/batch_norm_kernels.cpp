// Batch normalisation by LibTorch's operators, for CPUs and plugins, and the choice between it and CUDA.
#include "lockstep/strategies/nn/internal/batch_norm_kernels.h"

#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep::batch_norm {
namespace {

at::ScalarType statistics_dtype(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The operators expect a weight in the dtype of the input or of the statistics.
at::Tensor to_statistics_dtype(const at::Tensor& weight, const at::Tensor& input) {
  if (!weight.defined() || weight.scalar_type() != input.scalar_type()) return weight;
  return weight.to(statistics_dtype(input));
}

/// weight * (input - mean) / sqrt(var + eps) + bias
at::Tensor affine(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const Statistics& statistics, double eps) {
  return std::get<0>(at::native_batch_norm(input, weight, bias, statistics.mean, statistics.var,
                                           /*training=*/false, /*momentum=*/0, eps));
}

/// Returns the mean and the variance, whose divisor is the number of values, of each channel.
std::pair<at::Tensor, at::Tensor> mean_and_variance(const at::Tensor& input) {
  if (input.is_cpu()) {
    // The operator returns its results in the dtype of the running statistics, whose new values are not used.
    at::Tensor unused = at::zeros({input.size(1)}, input.options().dtype(statistics_dtype(input)));
    const auto [mean, var] = at::batch_norm_update_stats(input, unused, unused.clone(), /*momentum=*/0);
    return {mean, var};
  }
  // Few backends have the operator above.
  std::vector<int64_t> all_but_channels{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) all_but_channels.push_back(dim);
  const auto [var, mean] =
      at::var_mean(input.to(statistics_dtype(input)), all_but_channels, /*correction=*/0);
  return {mean, var};
}

}  // namespace

int64_t count_of(const at::Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

at::Tensor local_statistics(const at::Tensor& input, double eps) {
  if (input.is_cuda()) return cuda::local_statistics(input, eps);
  const int64_t channels = input.size(1);
  const auto wide = input.options().dtype(widest_float(input.device()));
  if (input.numel() == 0) return at::zeros({2 * channels + 1}, wide);
  const auto [mean, var] = mean_and_variance(input);
  const auto count = at::full({1}, count_of(input), wide);
  return at::cat({mean.to(count.scalar_type()), var.to(count.scalar_type()), count});
}

Statistics combine(const at::Tensor& gathered, const at::Tensor& input, const RunningStatistics& running,
                   double eps) {
  if (input.is_cuda()) return cuda::combine(gathered, input, running, eps);
  // Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances"
  // (1979), for any number of parts at once: the total variance is the mean of the parts' variances plus the
  // variance of their means. This avoids a difference of large numbers as in E[x^2] - E[x]^2.
  const int64_t channels = input.size(1);
  const at::Tensor counts = gathered.select(1, 2 * channels);
  const at::Tensor means = gathered.narrow(1, 0, channels);
  const at::Tensor vars = gathered.narrow(1, channels, channels);
  const auto total = counts.sum().item<double>();
  const at::Tensor shares = (counts / total).unsqueeze(1);
  const at::Tensor mean = (means * shares).sum(0);
  const at::Tensor var = ((vars + (means - mean).square_()) * shares).sum(0);
  if (running.mean.defined()) {
    const double kept = 1 - running.momentum;
    running.mean.mul_(kept).add_(mean, running.momentum);
    running.var.mul_(kept).add_(var, running.momentum * total / (total - 1));
  }
  const auto dtype = statistics_dtype(input);
  return {mean.to(dtype), var.to(dtype), (var + eps).rsqrt_().to(dtype), counts};
}

at::Tensor normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const Statistics& statistics, double eps) {
  if (input.numel() == 0) return at::empty_like(input);
  if (input.is_cuda()) return cuda::normalize(input, weight, bias, statistics, eps);
  return affine(input, to_statistics_dtype(weight, input), to_statistics_dtype(bias, input), statistics, eps);
}

Sums local_sums(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                const Statistics& statistics, double eps) {
  const auto dtype = statistics_dtype(input);
  if (input.numel() == 0) {
    const auto zeros = at::zeros(
        {2, input.size(1)}, input.options().dtype(input.is_cuda() ? dtype : widest_float(input.device())));
    return {zeros, zeros[1].clone(), zeros[0].clone()};
  }
  if (input.is_cuda()) return cuda::local_sums(gradient, input, weight, statistics);
  auto [unused, weight_gradient, bias_gradient] = at::native_batch_norm_backward(
      gradient.to(dtype), input.to(dtype), to_statistics_dtype(weight, input), /*running_mean=*/{},
      /*running_var=*/{}, statistics.mean, statistics.invstd, /*train=*/true, eps, {false, true, true});
  return {at::stack({bias_gradient, weight_gradient}).to(widest_float(input.device())), weight_gradient,
          bias_gradient};
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                          const Statistics& statistics, const at::Tensor& shared, double eps) {
  if (input.numel() == 0) return at::zeros_like(input);
  if (input.is_cuda()) return cuda::input_gradient(gradient, input, weight, statistics, shared);
  // With y = weight * x + bias of the normalised x, n values per channel and sums over all replicas:
  // weight * invstd * (dy - sum(dy) / n - x * sum(dy * x) / n).
  const auto dtype = statistics_dtype(input);
  at::Tensor scale = statistics.invstd.to(widest_float(input.device()));
  if (weight.defined()) scale = scale * weight;
  const at::Tensor factors = (shared * scale / statistics.counts.sum()).neg_().to(dtype);
  at::Tensor result = affine(input.to(dtype), factors[1], factors[0], statistics, eps);
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = -1;
  result.addcmul_(gradient.to(dtype), scale.to(dtype).view(shape));
  return result.to(input.scalar_type());
}

}  // namespace lockstep::batch_norm
