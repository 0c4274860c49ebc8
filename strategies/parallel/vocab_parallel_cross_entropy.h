#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>

#include "lockstep/strategies/parallel/parallel_module.h"

namespace lockstep {

struct VocabParallelCrossEntropyOptions {
  /// kNone: a loss for each target, which compute_average_loss() takes.
  at::Reduction::Reduction reduction = at::Reduction::None;
  /// Targets with this value have a loss of 0 and no gradient, and do not count in a mean.
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;  ///< from 0 to 1, as in torch::nn::CrossEntropyLoss
};

/// Cross entropy of logits of which each rank along an axis has some of the vocabulary, as a
/// ColumnParallelLinear returns them. The ranks exchange three numbers for each target; no rank has all
/// logits.
///
/// Example:
///
///     auto loss = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return VocabParallelCrossEntropy(replica.axis("tensor"));
///     });
///     // In a step: compute_average_loss(replica, loss->forward(head->forward(hidden), targets))
class VocabParallelCrossEntropyImpl : public ParallelModule {
 public:
  /// Throws InvalidArgument for label smoothing outside of 0 to 1.
  explicit VocabParallelCrossEntropyImpl(const ReplicaAxis& axis,
                                         const VocabParallelCrossEntropyOptions& options = {});

  /// Maps logits [..., vocabulary / ranks] and targets [...] of int64 or int32, which are the same on all
  /// ranks, to losses [...], or to one number with a reduction, the same on all ranks. A collective; its
  /// backward is not. Computes in float32 for float16 and bfloat16 logits, and returns float32 for them.
  /// Throws InvalidArgument for other shapes and dtypes and, on a CPU, for a target outside of the
  /// vocabulary; in backward with create_graph.
  torch::Tensor forward(const torch::Tensor& logits, const torch::Tensor& targets);

  const VocabParallelCrossEntropyOptions& options() const { return options_; }
  void pretty_print(std::ostream& stream) const override;

 private:
  VocabParallelCrossEntropyOptions options_;
};
TORCH_MODULE(VocabParallelCrossEntropy);

}  // namespace lockstep
