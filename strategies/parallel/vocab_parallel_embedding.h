#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "lockstep/strategies/parallel/parallel_module.h"

namespace lockstep {

struct VocabParallelEmbeddingOptions {
  int64_t num_embeddings = 0;  ///< of the whole table; the ranks must divide it
  int64_t embedding_dim = 0;
  /// A row that is zero at first and gets no gradient; negative: from the end.
  std::optional<int64_t> padding_idx = std::nullopt;
  /// The dimension of the ids of which each rank gets a shard of the output; see RowParallelLinearOptions.
  std::optional<int64_t> sequence_dim = std::nullopt;
};

/// An embedding of which each rank along an axis has some of the rows. The ranks together compute what
/// torch::nn::Embedding computes; the name of the parameter and its initial values are that module's.
///
/// Example:
///
///     auto table = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
///       return VocabParallelEmbedding(
///           replica.axis("tensor"),
///           VocabParallelEmbeddingOptions{.num_embeddings = 50304, .embedding_dim = 768});
///     });
class VocabParallelEmbeddingImpl : public ParallelModule {
 public:
  /// Throws InvalidArgument for a number below 1, for a padding_idx that is no row, and if the ranks do not
  /// divide the rows.
  VocabParallelEmbeddingImpl(const ReplicaAxis& axis, const VocabParallelEmbeddingOptions& options);
  /// Cuts an embedding, which is not kept, and takes its padding_idx. Throws InvalidArgument also for one
  /// with a maximum norm, with gradients scaled by frequency, or with sparse gradients.
  VocabParallelEmbeddingImpl(const ReplicaAxis& axis, const torch::nn::Embedding& whole,
                             std::optional<int64_t> sequence_dim = std::nullopt);

  /// Maps ids [...] of int64 or int32, the same on all ranks, to [..., embedding_dim], the same on all ranks
  /// or, with a `sequence_dim`, a rank's shard of that dimension. A collective, as is its backward with a
  /// `sequence_dim`. Throws InvalidArgument for other dtypes, for a `sequence_dim` that is none of the ids'
  /// or that the ranks do not divide, and, on a CPU, for an id that is no row.
  torch::Tensor forward(const torch::Tensor& ids);
  /// Does the same as forward() with `dim` as `sequence_dim`.
  torch::Tensor forward_to_shards(const torch::Tensor& ids, int64_t dim);

  const VocabParallelEmbeddingOptions& options() const { return options_; }
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;  ///< [num_embeddings / ranks, embedding_dim]

 private:
  /// Returns this rank's term of the sum.
  torch::Tensor partial_output(const torch::Tensor& ids) const;

  VocabParallelEmbeddingOptions options_;
};
TORCH_MODULE(VocabParallelEmbedding);

}  // namespace lockstep
