#include "lockstep/models/gpt/internal/cut_vocabulary.h"

#include <ATen/ops/linear.h>
#include <torch/nn/modules/embedding.h>

namespace lockstep {
namespace {

/// Makes an embedding of these values, without drawing others first.
torch::nn::Embedding embedding_of(const torch::Tensor& values) {
  return torch::nn::Embedding(torch::nn::EmbeddingOptions(values.size(0), values.size(1))._weight(values));
}

WrappedPart wrapped_by(const PartWrapper& wrap, const ModelPart& part) {
  return wrap ? wrap(part) : WrappedPart{part.module};
}

torch::Tensor call_part(const WrappedPart& part, const PartFunction& function, const torch::Tensor& x) {
  return part.call ? part.call(function, x) : function(x);
}

}  // namespace

CutVocabulary::CutVocabulary(const ReplicaAxis& axis, const torch::Tensor& tokens, const PartWrapper& wrap)
    : tokens_(axis, embedding_of(tokens)),
      tokens_part_(wrapped_by(wrap, {"tokens", tokens_.ptr()})),
      loss_(axis) {}

void CutVocabulary::cut_head(const ReplicaAxis& axis, const torch::Tensor& head, const PartWrapper& wrap) {
  head_ = ColumnParallelLinear(axis, LinearParameters{.weight = head, .bias = {}});
  head_part_ = wrapped_by(wrap, {"head", head_.ptr()});
}

torch::Tensor CutVocabulary::embed(const torch::Tensor& tokens) const {
  return call_part(
      tokens_part_, [table = tokens_.ptr()](const torch::Tensor& ids) { return table->forward(ids); },
      tokens);
}

torch::Tensor CutVocabulary::embed_shards(const torch::Tensor& tokens) const {
  return call_part(
      tokens_part_,
      [table = tokens_.ptr()](const torch::Tensor& ids) { return table->forward_to_shards(ids, 1); }, tokens);
}

torch::Tensor CutVocabulary::own_logits(const torch::Tensor& copied) const {
  const auto by = [&](const auto& layer) {
    return [layer](const torch::Tensor& x) { return at::linear(x, layer->weight); };
  };
  return head_.is_empty() ? call_part(tokens_part_, by(tokens_.ptr()), copied)
                          : call_part(head_part_, by(head_.ptr()), copied);
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
