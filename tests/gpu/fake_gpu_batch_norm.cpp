// The fake GPU's operators for batch normalisation over several GPUs, which LibTorch has for CUDA only: the
// formulas of its documentation, in float64.
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>
#include <vector>

#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

/// A value a channel, shaped to broadcast over `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

/// All dimensions but the channels'.
std::vector<int64_t> others(const at::Tensor& input) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.cpu().to(at::kDouble);
}

/// `tensors` and those of the other two that are there.
std::vector<at::Tensor> with(std::vector<at::Tensor> tensors, const std::optional<at::Tensor>& one,
                             const std::optional<at::Tensor>& other) {
  for (const auto& more : {one, other}) {
    if (more && more->defined()) tensors.push_back(*more);
  }
  return tensors;
}

at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  at::Tensor mean;
  at::Tensor invstd;
  as_operator("aten::batch_norm_stats", {input}, [&] {
    const at::Tensor x = wide(input);
    mean = x.mean(others(x)).to(input.device(), statistics_type(input));
    invstd = (x.var(others(x), /*unbiased=*/false) + eps).rsqrt().to(input.device(), statistics_type(input));
    return std::vector<at::Tensor>{mean, invstd};
  });
  return {mean, invstd};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& input, const at::Tensor& means,
                                                const at::Tensor& invstds,
                                                const std::optional<at::Tensor>& running_mean,
                                                const std::optional<at::Tensor>& running_var, double momentum,
                                                double eps, const at::Tensor& counts) {
  at::Tensor mean;
  at::Tensor invstd;
  as_operator("aten::batch_norm_gather_stats_with_counts",
              with({input, means, invstds, counts}, running_mean, running_var), [&] {
                const at::Tensor n = wide(counts).view({-1, 1});
                const at::Tensor m = wide(means);
                const at::Tensor total = n.sum();
                const at::Tensor global = (n * m).sum(0) / total;
                const at::Tensor squares = (n * (wide(invstds).pow(-2) - eps + (m - global).pow(2))).sum(0);
                std::vector<at::Tensor> written;
                if (running_mean && running_mean->defined()) {
                  running_mean->copy_((1 - momentum) * wide(*running_mean) + momentum * global);
                  running_var->copy_((1 - momentum) * wide(*running_var) + momentum * squares / (total - 1));
                  written = {*running_mean, *running_var};
                }
                mean = global.to(means.device(), means.scalar_type());
                invstd = (squares / total + eps).rsqrt().to(means.device(), means.scalar_type());
                written.insert(written.end(), {mean, invstd});
                return written;
              });
  return {mean, invstd};
}

at::Tensor elemt(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                 const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& invstd,
                 double /*eps*/) {
  at::Tensor output;
  as_operator("aten::batch_norm_elemt", with({input, mean, invstd}, weight, bias), [&] {
    at::Tensor y = (wide(input) - per_channel(wide(mean), input)) * per_channel(wide(invstd), input);
    if (weight && weight->defined()) y = y * per_channel(wide(*weight), input);
    if (bias && bias->defined()) y = y + per_channel(wide(*bias), input);
    output = at::empty_like(input);
    output.copy_(y);
    return std::vector<at::Tensor>{output};
  });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight, bool for_input, bool for_weight, bool for_bias) {
  at::Tensor sum_dy;
  at::Tensor sum_dy_xmu;
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  as_operator("aten::batch_norm_backward_reduce", with({gradient, input, mean, invstd}, weight, {}), [&] {
    const at::Tensor dy = wide(gradient);
    const at::Tensor sum = dy.sum(others(dy));
    const at::Tensor with_xmu = (dy * (wide(input) - per_channel(wide(mean), input))).sum(others(dy));
    const auto like_mean = [&](const at::Tensor& values) {
      return values.to(mean.device(),
                       weight && weight->defined() ? weight->scalar_type() : mean.scalar_type());
    };
    std::vector<at::Tensor> written;
    if (for_input) {
      written.push_back(sum_dy = sum.to(mean.device(), mean.scalar_type()));
      written.push_back(sum_dy_xmu = with_xmu.to(mean.device(), mean.scalar_type()));
    }
    if (for_weight) written.push_back(weight_gradient = like_mean(with_xmu * wide(invstd)));
    if (for_bias) written.push_back(bias_gradient = like_mean(sum));
    return written;
  });
  return {sum_dy, sum_dy_xmu, weight_gradient, bias_gradient};
}

at::Tensor backward_elemt(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const std::optional<at::Tensor>& weight,
                          const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu, const at::Tensor& counts) {
  at::Tensor result;
  as_operator("aten::batch_norm_backward_elemt", {gradient, input, mean, invstd, sum_dy, sum_dy_xmu, counts},
              [&] {
                const at::Tensor total = wide(counts).sum();
                const at::Tensor xmu = wide(input) - per_channel(wide(mean), input);
                at::Tensor dx = wide(gradient) - per_channel(wide(sum_dy) / total, input) -
                                xmu * per_channel(wide(invstd).pow(2) * wide(sum_dy_xmu) / total, input);
                dx = dx * per_channel(wide(invstd), input);
                if (weight && weight->defined()) dx = dx * per_channel(wide(*weight), input);
                result = at::empty_like(input);
                result.copy_(dx);
                return std::vector<at::Tensor>{result};
              });
  return result;
}

/// Its schema does not tell that it writes the running statistics.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    bool training, double momentum, double eps) {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> results;
  as_operator("aten::native_batch_norm", with(with({input}, weight, bias), running_mean, running_var), [&] {
    const auto host = [](const std::optional<at::Tensor>& tensor) {
      return tensor && tensor->defined() ? std::optional(tensor->cpu()) : std::nullopt;
    };
    const auto mean = host(running_mean);
    const auto var = host(running_var);
    auto [output, save_mean, save_invstd] =
        at::native_batch_norm(input.cpu(), host(weight), host(bias), mean, var, training, momentum, eps);
    const auto back = [&](const at::Tensor& tensor) { return tensor.to(input.device()); };
    results = {back(output), back(save_mean), back(save_invstd)};
    std::vector<at::Tensor> written{std::get<0>(results), std::get<1>(results), std::get<2>(results)};
    if (training && mean) {
      running_mean->copy_(*mean);
      running_var->copy_(*var);
      written.insert(written.end(), {*running_mean, *running_var});
    }
    return written;
  });
  return results;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("native_batch_norm", &native_batch_norm);
  library.impl("batch_norm_stats", &stats);
  library.impl("batch_norm_gather_stats_with_counts", &gather_stats);
  library.impl("batch_norm_elemt", &elemt);
  library.impl("batch_norm_backward_reduce", &backward_reduce);
  library.impl("batch_norm_backward_elemt", &backward_elemt);
}

}  // namespace
}  // namespace lockstep::fake_gpu
