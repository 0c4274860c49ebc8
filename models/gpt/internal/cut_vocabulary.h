#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>

#include "lockstep/models/parts/model_parts.h"
#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/strategies/parallel/parallel_linear.h"
#include "lockstep/strategies/parallel/vocab_parallel_cross_entropy.h"
#include "lockstep/strategies/parallel/vocab_parallel_embedding.h"

namespace lockstep {

/// The first and the last layer of a Gpt of which each rank along an axis has the rows of some tokens. The
/// model registers the modules.
class CutVocabulary {
 public:
  /// Cuts the table of token embeddings, of the whole values `tokens`. `wrap` decides what stands for the
  /// parts `tokens` and `head`; empty: they themselves.
  CutVocabulary(const ReplicaAxis& axis, const torch::Tensor& tokens, const PartWrapper& wrap);
  /// Cuts a head of its own. Without one, the head has the weights of the embeddings.
  void cut_head(const ReplicaAxis& axis, const torch::Tensor& head, const PartWrapper& wrap);

  const ParallelAxis& axis() const { return tokens_->parallel_axis(); }
  torch::Tensor embed(const torch::Tensor& tokens) const;
  /// Returns this rank's shard of the embedded sequence [B, T].
  torch::Tensor embed_shards(const torch::Tensor& tokens) const;
  /// Returns the logits of all tokens, on all ranks.
  torch::Tensor logits(const torch::Tensor& features) const;
  /// Returns the cross entropy of each target, without gathering the logits. `are_shards` says that the
  /// features are those of this rank's shard of the sequence.
  torch::Tensor losses(const torch::Tensor& features, const torch::Tensor& targets, bool are_shards);

  // The modules to register.

  const std::shared_ptr<torch::nn::Module>& tokens() const { return tokens_part_.module; }
  const std::shared_ptr<torch::nn::Module>& head() const { return head_part_.module; }  ///< null if tied
  const VocabParallelCrossEntropy& loss() const { return loss_; }

 private:
  /// Of the rank's own tokens, from features that are the ranks' to use.
  torch::Tensor own_logits(const torch::Tensor& copied) const;

  VocabParallelEmbedding tokens_;
  WrappedPart tokens_part_;
  ColumnParallelLinear head_{nullptr};
  WrappedPart head_part_;
  VocabParallelCrossEntropy loss_;
};

}  // namespace lockstep
