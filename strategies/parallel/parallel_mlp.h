#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/strategies/parallel/parallel_linear.h"

namespace lockstep {

struct ParallelMlpOptions {
  int64_t features = 0;         ///< of the input and the output
  int64_t hidden_features = 0;  ///< the ranks must divide it
  bool bias = true;
  /// Elementwise; each rank applies it to its part of the hidden features. Null: GELU.
  std::function<torch::Tensor(const torch::Tensor&)> activation = nullptr;
  double hidden_dropout = 0.0;  ///< of the hidden features, each rank of its own; see RankRandom
  double dropout = 0.0;         ///< of the output, the same on all ranks unless they have shards of it
  /// The dimension of which each rank has a shard of the input and of the output, such as that of the
  /// sequence; see ColumnParallelLinearOptions. Absent: all ranks have the whole.
  std::optional<int64_t> sequence_dim = std::nullopt;
};

/// A linear layer, an activation, and a linear layer, of which each rank along an axis has some of the hidden
/// features. Forward sums once over the ranks, and so does backward. With shards of the sequence, each
/// gathers once, too.
///
/// Example:
///
///     auto mlp = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return ParallelMlp(replica.axis("tensor"),
///                          ParallelMlpOptions{.features = 256, .hidden_features = 1024, .dropout = 0.1});
///     });
class ParallelMlpImpl : public ParallelModule {
 public:
  /// Throws InvalidArgument for a number below 1, for a dropout outside of 0 to 1, and if the ranks do not
  /// divide the hidden features.
  ParallelMlpImpl(const ReplicaAxis& axis, const ParallelMlpOptions& options);

  /// Maps [..., features] to the same shape, both the same on all ranks, or both a rank's shard of
  /// `sequence_dim`. A collective, as is its backward.
  torch::Tensor forward(const torch::Tensor& input);

  const ParallelMlpOptions& options() const { return options_; }

  ColumnParallelLinear up{nullptr};  ///< from `features` to `hidden_features`
  RowParallelLinear down{nullptr};   ///< from `hidden_features` to `features`

 private:
  torch::Tensor own_dropout(const torch::Tensor& values, double probability) const;

  ParallelMlpOptions options_;
};
TORCH_MODULE(ParallelMlp);

}  // namespace lockstep
