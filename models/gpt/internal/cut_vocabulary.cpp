#include "lockstep/models/gpt/internal/cut_vocabulary.h"

#include <ATen/ops/linear.h>
#include <torch/nn/modules/embedding.h>

namespace lockstep {
namespace {

/// Makes an embedding of these values, without drawing others first.
torch::nn::Embedding embedding_of(const torch::Tensor& values) {
  return torch::nn::Embedding(torch::nn::EmbeddingOptions(values.size(0), values.size(1))._weight(values));
}

}  // namespace

CutVocabulary::CutVocabulary(const ReplicaAxis& axis, const torch::Tensor& tokens)
    : tokens_(axis, embedding_of(tokens)), loss_(axis) {}

void CutVocabulary::cut_head(const ReplicaAxis& axis, const torch::Tensor& head) {
  head_ = ColumnParallelLinear(axis, LinearParameters{.weight = head, .bias = {}});
}

torch::Tensor CutVocabulary::own_logits(const torch::Tensor& copied) const {
  return at::linear(copied, head_.is_empty() ? tokens_->weight : head_->weight);
}

torch::Tensor CutVocabulary::logits(const torch::Tensor& features) const {
  return axis().gather_parts(own_logits(axis().copy_to_parts(features)), -1);
}

torch::Tensor CutVocabulary::losses(const torch::Tensor& features, const torch::Tensor& targets,
                                    bool are_shards) {
  const auto copied = are_shards ? axis().gather_shards(features, 1) : axis().copy_to_parts(features);
  return loss_->forward(own_logits(copied), targets);
}

}  // namespace lockstep
