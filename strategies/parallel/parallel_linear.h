#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "lockstep/strategies/parallel/parallel_module.h"

namespace lockstep {

/// The parameters of a whole linear layer, to cut.
struct LinearParameters {
  torch::Tensor weight;  ///< [out_features, in_features]
  torch::Tensor bias;    ///< [out_features]; undefined without a bias
};

struct ColumnParallelLinearOptions {
  int64_t in_features = 0;   ///< of the whole layer
  int64_t out_features = 0;  ///< of the whole layer; the ranks must divide it
  bool bias = true;
  /// Returns the whole output on all ranks, instead of this rank's features.
  bool gather_output = false;
  /// The dimension of which each rank has a shard of the input, such as that of the sequence; negative: from
  /// the end. It must not be that of the features. Absent: all ranks have the whole input.
  std::optional<int64_t> sequence_dim = std::nullopt;
  /// Numbers of consecutive output features, each of which is cut by itself, so that a rank has its share of
  /// each, such as of queries, keys and values. Empty: all are cut together. Not with gather_output.
  std::vector<int64_t> sections = {};
};

/// A linear layer of which each rank along an axis has some of the output features. The ranks together
/// compute what torch::nn::Linear computes; the names of parameters and their initial values are that
/// module's.
///
/// Example:
///
///     auto layer = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return ColumnParallelLinear(replica.axis("tensor"),
///                                   ColumnParallelLinearOptions{.in_features = 64, .out_features = 256});
///     });
class ColumnParallelLinearImpl : public ParallelModule {
 public:
  /// Throws InvalidArgument for a number below 1, and if the ranks do not divide the output features or those
  /// of a section.
  ColumnParallelLinearImpl(const ReplicaAxis& axis, const ColumnParallelLinearOptions& options);
  /// Cuts a layer, which is not kept. `options` need no features and no bias: they are the layer's.
  ColumnParallelLinearImpl(const ReplicaAxis& axis, const torch::nn::Linear& whole,
                           ColumnParallelLinearOptions options = {});
  ColumnParallelLinearImpl(const ReplicaAxis& axis, const LinearParameters& whole,
                           ColumnParallelLinearOptions options = {});

  /// Maps [..., in_features], the same on all ranks, to [..., out_features / ranks], or to [...,
  /// out_features] if it gathers. With a `sequence_dim`, the input has a rank's shard of that dimension, and
  /// the output has all of it. Its backward is a collective if the input has a gradient. Throws
  /// InvalidArgument for another number of features.
  torch::Tensor forward(const torch::Tensor& input);

  const ColumnParallelLinearOptions& options() const { return options_; }
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;  ///< [out_features / ranks, in_features]
  torch::Tensor bias;    ///< [out_features / ranks]; undefined without a bias

 private:
  ColumnParallelLinearOptions options_;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  int64_t in_features = 0;   ///< of the whole layer; the ranks must divide it
  int64_t out_features = 0;  ///< of the whole layer
  bool bias = true;
  /// Whether the input is this rank's part of the features, as a ColumnParallelLinear returns it. If not, it
  /// is the whole, and the same on all ranks.
  bool input_is_parallel = true;
  /// The dimension of which each rank gets a shard of the output, such as that of the sequence; negative:
  /// from the end. It must not be that of the features, and the ranks must divide its size. Absent: all ranks
  /// get the whole output.
  std::optional<int64_t> sequence_dim = std::nullopt;
};

/// A linear layer of which each rank along an axis has some of the input features, and whose output is the
/// sum over the ranks. The ranks together compute what torch::nn::Linear computes; the names of parameters
/// and their initial values are that module's. Each rank has the whole bias.
///
/// Example:
///
///     auto layer = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return RowParallelLinear(replica.axis("tensor"),
///                                RowParallelLinearOptions{.in_features = 256, .out_features = 64});
///     });
class RowParallelLinearImpl : public ParallelModule {
 public:
  /// Throws InvalidArgument for a number below 1, and if the ranks do not divide the input features.
  RowParallelLinearImpl(const ReplicaAxis& axis, const RowParallelLinearOptions& options);
  /// Cuts a layer, which is not kept. `options` need no features and no bias: they are the layer's.
  RowParallelLinearImpl(const ReplicaAxis& axis, const torch::nn::Linear& whole,
                        RowParallelLinearOptions options = {});
  RowParallelLinearImpl(const ReplicaAxis& axis, const LinearParameters& whole,
                        RowParallelLinearOptions options = {});

  /// Maps [..., in_features / ranks], or [..., in_features] if the input is not parallel, to
  /// [..., out_features], the same on all ranks or, with a `sequence_dim`, a rank's shard of that dimension.
  /// A collective, as is its backward with a `sequence_dim`, or if the input is not parallel and has a
  /// gradient. Throws InvalidArgument for another number of features, and for a `sequence_dim` that the ranks
  /// do not divide.
  torch::Tensor forward(const torch::Tensor& input);
  /// Does the same as forward() with `dim` as `sequence_dim`.
  torch::Tensor forward_to_shards(const torch::Tensor& input, int64_t dim);

  const RowParallelLinearOptions& options() const { return options_; }
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;  ///< [out_features, in_features / ranks]
  torch::Tensor bias;    ///< [out_features]; undefined without a bias

 private:
  /// Returns this rank's term of the sum.
  torch::Tensor partial_output(const torch::Tensor& input) const;

  RowParallelLinearOptions options_;
};
TORCH_MODULE(RowParallelLinear);

}  // namespace lockstep
