#include "lockstep/strategies/parallel/parallel_linear.h"

#include <ATen/ops/linear.h>
#include <c10/util/StringUtil.h>

#include <ostream>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Makes the whole layer, if its features can be cut.
template <typename Options>
torch::nn::Linear whole_linear(const char* type, const Options& options) {
  if (options.in_features < 1 || options.out_features < 1) {
    throw InvalidArgument(c10::str("[", type, "] expected 1 or more in_features and out_features, but got ",
                                   options.in_features, " and ", options.out_features));
  }
  return torch::nn::Linear(
      torch::nn::LinearOptions(options.in_features, options.out_features).bias(options.bias));
}

LinearParameters parameters_of(const torch::nn::Linear& whole) {
  if (whole.is_empty())
    throw InvalidArgument("[parallel] expected a linear layer to cut, but got an empty one");
  return {whole->weight, whole->bias};
}

/// Fills in what the layer decides.
template <typename Options>
Options options_like(const LinearParameters& whole, Options options) {
  if (!whole.weight.defined() || whole.weight.dim() != 2)
    throw InvalidArgument("[parallel] expected a weight [out_features, in_features] to cut");
  options.in_features = whole.weight.size(1);
  options.out_features = whole.weight.size(0);
  options.bias = whole.bias.defined();
  return options;
}

void check_features(const char* type, const torch::Tensor& input, int64_t expected) {
  if (input.dim() > 0 && input.size(-1) == expected) return;
  throw InvalidArgument(
      c10::str("[", type, "] expected an input of [..., ", expected, "], but got ", input.sizes()));
}

/// Returns the dimension, from 0.
int64_t checked_sequence_dim(const char* type, const torch::Tensor& values, int64_t dim) {
  const int64_t wrapped = dim < 0 ? dim + values.dim() : dim;
  if (wrapped >= 0 && wrapped < values.dim() - 1) return wrapped;
  throw InvalidArgument(c10::str("[", type, "] expected a sequence_dim of [", values.sizes(),
                                 "] other than that of the features, but got ", dim));
}

constexpr const char* kColumn = "ColumnParallelLinear";
constexpr const char* kRow = "RowParallelLinear";

/// Throws before the layer is made, which may be large.
template <typename Options>
const Options& with_cut(const ReplicaAxis& axis, const char* type, const Options& options, int64_t features,
                        const char* what) {
  ParallelAxis(type, axis).share_of(features, what);
  return options;
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ReplicaAxis& axis,
                                                   const ColumnParallelLinearOptions& options)
    : ColumnParallelLinearImpl(
          axis, whole_linear(kColumn, with_cut(axis, kColumn, options, options.out_features, "out_features")),
          options) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ReplicaAxis& axis, const torch::nn::Linear& whole,
                                                   ColumnParallelLinearOptions options)
    : ColumnParallelLinearImpl(axis, parameters_of(whole), std::move(options)) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ReplicaAxis& axis, const LinearParameters& whole,
                                                   ColumnParallelLinearOptions options)
    : ParallelModule(kColumn, axis), options_(options_like(whole, std::move(options))) {
  if (options_.gather_output && !options_.sections.empty())
    throw InvalidArgument(c10::str("[", kColumn, "] expected no sections with gather_output"));
  parallel_axis().share_of(options_.out_features, "out_features");
  weight = register_cut("weight", whole.weight, 0, options_.sections);
  if (options_.bias) {
    bias = register_cut("bias", whole.bias, 0, options_.sections);
  } else {
    register_parameter("bias", {}, /*requires_grad=*/false);
  }
}

torch::Tensor ColumnParallelLinearImpl::forward(const torch::Tensor& input) {
  check_features(kColumn, input, options_.in_features);
  const auto whole =
      options_.sequence_dim
          ? parallel_axis().gather_shards(input, checked_sequence_dim(kColumn, input, *options_.sequence_dim))
          : parallel_axis().copy_to_parts(input);
  const auto part = torch::linear(whole, weight, bias);
  return options_.gather_output ? parallel_axis().gather_parts(part, -1) : part;
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ColumnParallelLinear(in_features=" << options_.in_features
         << ", out_features=" << options_.out_features << ", bias=" << std::boolalpha << options_.bias
         << ", part " << parallel_axis().index() << " of " << parallel_axis().size() << ")";
}

RowParallelLinearImpl::RowParallelLinearImpl(const ReplicaAxis& axis, const RowParallelLinearOptions& options)
    : RowParallelLinearImpl(
          axis, whole_linear(kRow, with_cut(axis, kRow, options, options.in_features, "in_features")),
          options) {}

RowParallelLinearImpl::RowParallelLinearImpl(const ReplicaAxis& axis, const torch::nn::Linear& whole,
                                             RowParallelLinearOptions options)
    : RowParallelLinearImpl(axis, parameters_of(whole), options) {}

RowParallelLinearImpl::RowParallelLinearImpl(const ReplicaAxis& axis, const LinearParameters& whole,
                                             RowParallelLinearOptions options)
    : ParallelModule(kRow, axis), options_(options_like(whole, options)) {
  parallel_axis().share_of(options_.in_features, "in_features");
  weight = register_cut("weight", whole.weight, 1);
  if (options_.bias) {
    bias = register_parameter("bias", whole.bias.detach().clone(), whole.bias.requires_grad());
  } else {
    register_parameter("bias", {}, /*requires_grad=*/false);
  }
}

torch::Tensor RowParallelLinearImpl::partial_output(const torch::Tensor& input) const {
  const int64_t share = options_.in_features / parallel_axis().size();
  check_features(kRow, input, options_.input_is_parallel ? share : options_.in_features);
  return torch::linear(options_.input_is_parallel ? input : parallel_axis().own_part(input, -1), weight);
}

torch::Tensor RowParallelLinearImpl::forward(const torch::Tensor& input) {
  if (options_.sequence_dim) return forward_to_shards(input, *options_.sequence_dim);
  const auto sum = parallel_axis().sum_of_parts(partial_output(input));
  return bias.defined() ? sum + bias : sum;
}

torch::Tensor RowParallelLinearImpl::forward_to_shards(const torch::Tensor& input, int64_t dim) {
  const auto partial = partial_output(input);
  const auto shard = parallel_axis().sum_to_shards(partial, checked_sequence_dim(kRow, partial, dim));
  // Each rank adds it to its shard only, so its gradients are to be summed.
  return bias.defined() ? shard + parallel_axis().copy_to_parts(bias) : shard;
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::RowParallelLinear(in_features=" << options_.in_features
         << ", out_features=" << options_.out_features << ", bias=" << std::boolalpha << options_.bias
         << ", part " << parallel_axis().index() << " of " << parallel_axis().size() << ")";
}

}  // namespace lockstep
