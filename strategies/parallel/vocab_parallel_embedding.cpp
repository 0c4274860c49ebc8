#include "lockstep/strategies/parallel/vocab_parallel_embedding.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <ostream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/parallel/internal/vocabulary_part.h"

namespace lockstep {
namespace {

constexpr const char* kEmbedding = "VocabParallelEmbedding";

torch::nn::Embedding whole_embedding(const ReplicaAxis& axis, const VocabParallelEmbeddingOptions& options) {
  if (options.num_embeddings < 1 || options.embedding_dim < 1) {
    throw InvalidArgument(c10::str("[", kEmbedding,
                                   "] expected 1 or more num_embeddings and embedding_dim, but got ",
                                   options.num_embeddings, " and ", options.embedding_dim));
  }
  const int64_t padding = options.padding_idx.value_or(0);
  if (padding < -options.num_embeddings || padding >= options.num_embeddings) {
    throw InvalidArgument(c10::str("[", kEmbedding, "] expected a padding_idx that is one of ",
                                   options.num_embeddings, " rows, but got ", padding));
  }
  ParallelAxis(kEmbedding, axis).share_of(options.num_embeddings, "num_embeddings");
  torch::nn::EmbeddingOptions whole(options.num_embeddings, options.embedding_dim);
  if (options.padding_idx) whole.padding_idx(*options.padding_idx);
  return torch::nn::Embedding(whole);
}

int64_t sequence_dim_of(const torch::Tensor& ids, int64_t dim) {
  const int64_t wrapped = dim < 0 ? dim + ids.dim() : dim;
  if (wrapped >= 0 && wrapped < ids.dim()) return wrapped;
  throw InvalidArgument(
      c10::str("[", kEmbedding, "] expected a sequence_dim of ids [", ids.sizes(), "], but got ", dim));
}

}  // namespace

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const ReplicaAxis& axis,
                                                       const VocabParallelEmbeddingOptions& options)
    : VocabParallelEmbeddingImpl(axis, whole_embedding(axis, options), options.sequence_dim) {}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const ReplicaAxis& axis,
                                                       const torch::nn::Embedding& whole,
                                                       std::optional<int64_t> sequence_dim)
    : ParallelModule(kEmbedding, axis) {
  if (whole.is_empty())
    throw InvalidArgument("[parallel] expected an embedding to cut, but got an empty one");
  const auto& given = whole->options;
  if (given.max_norm() || given.scale_grad_by_freq() || given.sparse()) {
    throw InvalidArgument(
        c10::str("[", kEmbedding,
                 "] expected an embedding without max_norm, scale_grad_by_freq and sparse, but "
                 "got one with ",
                 given.max_norm() ? "max_norm"
                 : given.sparse() ? "sparse"
                                  : "scale_grad_by_freq"));
  }
  options_ = {.num_embeddings = whole->weight.size(0),
              .embedding_dim = whole->weight.size(1),
              .sequence_dim = sequence_dim};
  if (const auto padding = given.padding_idx())
    options_.padding_idx = *padding < 0 ? *padding + options_.num_embeddings : *padding;
  parallel_axis().share_of(options_.num_embeddings, "num_embeddings");
  weight = register_cut("weight", whole->weight, 0);
}

torch::Tensor VocabParallelEmbeddingImpl::partial_output(const torch::Tensor& ids) const {
  check_ids(kEmbedding, ids, options_.num_embeddings);
  const int64_t rows = weight.size(0);
  const int64_t begin = parallel_axis().index() * rows;
  const int64_t padding = options_.padding_idx ? *options_.padding_idx - begin : -1;
  const bool has_padding = padding >= 0 && padding < rows;
  if (parallel_axis().size() == 1) return at::embedding(weight, ids, has_padding ? padding : -1);
  const VocabularyPart part = part_of_ids(ids, begin, rows);
  const auto own = at::embedding(weight, part.local, has_padding ? padding : -1);
  return own.masked_fill(part.is_elsewhere.unsqueeze(-1), 0);
}

torch::Tensor VocabParallelEmbeddingImpl::forward(const torch::Tensor& ids) {
  if (options_.sequence_dim) return forward_to_shards(ids, *options_.sequence_dim);
  return parallel_axis().sum_of_parts(partial_output(ids));
}

torch::Tensor VocabParallelEmbeddingImpl::forward_to_shards(const torch::Tensor& ids, int64_t dim) {
  return parallel_axis().sum_to_shards(partial_output(ids), sequence_dim_of(ids, dim));
}

void VocabParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::VocabParallelEmbedding(num_embeddings=" << options_.num_embeddings
         << ", embedding_dim=" << options_.embedding_dim << ", part " << parallel_axis().index() << " of "
         << parallel_axis().size() << ")";
}

}  // namespace lockstep
