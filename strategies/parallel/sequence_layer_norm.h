#pragma once

#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "lockstep/strategies/parallel/parallel_module.h"

namespace lockstep {

/// A layer norm of which each rank along an axis normalizes a shard of the sequence. Its parameters are whole
/// on every rank, and have the gradients that torch::nn::LayerNorm's have for the whole sequence. Names and
/// initial values are that module's.
///
/// Example:
///
///     auto norm = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return SequenceLayerNorm(replica.axis("tensor"), torch::nn::LayerNormOptions({768}));
///     });
class SequenceLayerNormImpl : public ParallelModule {
 public:
  SequenceLayerNormImpl(const ReplicaAxis& axis, const torch::nn::LayerNormOptions& options);
  /// Takes the values of a layer norm, which is not kept.
  SequenceLayerNormImpl(const ReplicaAxis& axis, const torch::nn::LayerNorm& whole);

  /// Maps a shard [..., normalized_shape] to the same shape. Backward sums the parameters' gradients over the
  /// ranks: a collective, if there are parameters.
  torch::Tensor forward(const torch::Tensor& shard);

  const torch::nn::LayerNormOptions& options() const { return options_; }
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;  ///< [normalized_shape]; undefined without elementwise_affine
  torch::Tensor bias;    ///< like `weight`

 private:
  torch::nn::LayerNormOptions options_;
};
TORCH_MODULE(SequenceLayerNorm);

}  // namespace lockstep
