#include "lockstep/strategies/parallel/parallel_mlp.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kMlp = "ParallelMlp";

const ParallelMlpOptions& checked_mlp(const ParallelMlpOptions& options) {
  if (options.features < 1 || options.hidden_features < 1) {
    throw InvalidArgument(c10::str("[", kMlp, "] expected 1 or more features and hidden_features, but got ",
                                   options.features, " and ", options.hidden_features));
  }
  for (const double dropout : {options.hidden_dropout, options.dropout}) {
    if (dropout >= 0 && dropout <= 1) continue;
    throw InvalidArgument(c10::str("[", kMlp, "] expected a dropout from 0 to 1, but got ", dropout));
  }
  return options;
}

}  // namespace

ParallelMlpImpl::ParallelMlpImpl(const ReplicaAxis& axis, const ParallelMlpOptions& options)
    : ParallelModule(kMlp, axis), options_(checked_mlp(options)) {
  parallel_axis().share_of(options.hidden_features, "hidden_features");
  up = register_module(
      "up", ColumnParallelLinear(axis, ColumnParallelLinearOptions{.in_features = options.features,
                                                                   .out_features = options.hidden_features,
                                                                   .bias = options.bias,
                                                                   .sequence_dim = options.sequence_dim}));
  down = register_module(
      "down", RowParallelLinear(axis, RowParallelLinearOptions{.in_features = options.hidden_features,
                                                               .out_features = options.features,
                                                               .bias = options.bias,
                                                               .sequence_dim = options.sequence_dim}));
}

/// Drops numbers of which each rank has its own.
torch::Tensor ParallelMlpImpl::own_dropout(const torch::Tensor& values, double probability) const {
  if (!is_training() || probability == 0) return values;
  if (parallel_axis().size() == 1) return at::dropout(values, probability, /*train=*/true);
  const RankRandom own = parallel_axis().rank_random();
  return at::dropout(values, probability, /*train=*/true);
}

torch::Tensor ParallelMlpImpl::forward(const torch::Tensor& input) {
  torch::Tensor hidden = up->forward(input);
  hidden = options_.activation ? options_.activation(hidden) : at::gelu(hidden);
  const auto output = down->forward(own_dropout(hidden, options_.hidden_dropout));
  if (options_.sequence_dim) return own_dropout(output, options_.dropout);
  return at::dropout(output, options_.dropout, is_training());
}

}  // namespace lockstep
