// Operators for batch normalisation over several GPUs, which LibTorch implements only for CUDA: the formulas
// of its documentation, in float64. The fake GPU's fallback calls them on the CPU.
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>
#include <vector>

namespace lockstep::fake_gpu {
namespace {

/// One value per channel, shaped to broadcast over `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

/// All dimensions except the channels'.
std::vector<int64_t> others(const at::Tensor& input) {
  std::vector<int64_t> dimensions{0};
  for (int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::kDouble);
}

bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = wide(input);
  return {x.mean(others(x)).to(type), (x.var(others(x), /*unbiased=*/false) + eps).rsqrt().to(type)};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& /*input*/, const at::Tensor& means,
                                                const at::Tensor& invstds,
                                                const std::optional<at::Tensor>& running_mean,
                                                const std::optional<at::Tensor>& running_var, double momentum,
                                                double eps, const at::Tensor& counts) {
  const at::Tensor n = wide(counts).view({-1, 1});
  const at::Tensor m = wide(means);
  const at::Tensor total = n.sum();
  const at::Tensor mean = (n * m).sum(0) / total;
  const at::Tensor squares = (n * (wide(invstds).pow(-2) - eps + (m - mean).pow(2))).sum(0);
  if (is_given(running_mean)) {
    running_mean->copy_((1 - momentum) * wide(*running_mean) + momentum * mean);
    running_var->copy_((1 - momentum) * wide(*running_var) + momentum * squares / (total - 1));
  }
  return {mean.to(means.scalar_type()), (squares / total + eps).rsqrt().to(means.scalar_type())};
}

at::Tensor elemt(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                 const std::optional<at::Tensor>& bias, const at::Tensor& mean, const at::Tensor& invstd,
                 double /*eps*/) {
  at::Tensor y = (wide(input) - per_channel(wide(mean), input)) * per_channel(wide(invstd), input);
  if (is_given(weight)) y = y * per_channel(wide(*weight), input);
  if (is_given(bias)) y = y + per_channel(wide(*bias), input);
  return at::empty_like(input).copy_(y);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight, bool for_input, bool for_weight, bool for_bias) {
  const at::Tensor dy = wide(gradient);
  const at::Tensor sum = dy.sum(others(dy));
  const at::Tensor with_xmu = (dy * (wide(input) - per_channel(wide(mean), input))).sum(others(dy));
  const auto type = is_given(weight) ? weight->scalar_type() : mean.scalar_type();
  const auto if_asked = [](bool is_asked, const at::Tensor& values, at::ScalarType to) {
    return is_asked ? values.to(to) : at::Tensor();
  };
  return {if_asked(for_input, sum, mean.scalar_type()), if_asked(for_input, with_xmu, mean.scalar_type()),
          if_asked(for_weight, with_xmu * wide(invstd), type), if_asked(for_bias, sum, type)};
}

at::Tensor backward_elemt(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const std::optional<at::Tensor>& weight,
                          const at::Tensor& sum_dy, const at::Tensor& sum_dy_xmu, const at::Tensor& counts) {
  const at::Tensor total = wide(counts).sum();
  const at::Tensor xmu = wide(input) - per_channel(wide(mean), input);
  at::Tensor dx = wide(gradient) - per_channel(wide(sum_dy) / total, input) -
                  xmu * per_channel(wide(invstd).pow(2) * wide(sum_dy_xmu) / total, input);
  dx = dx * per_channel(wide(invstd), input);
  if (is_given(weight)) dx = dx * per_channel(wide(*weight), input);
  return at::empty_like(input).copy_(dx);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm_stats", &stats);
  library.impl("batch_norm_gather_stats_with_counts", &gather_stats);
  library.impl("batch_norm_elemt", &elemt);
  library.impl("batch_norm_backward_reduce", &backward_reduce);
  library.impl("batch_norm_backward_elemt", &backward_elemt);
}

}  // namespace
}  // namespace lockstep::fake_gpu
