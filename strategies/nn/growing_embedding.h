#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <memory>

#include "lockstep/parameter_server/variables/row_growth.h"
#include "lockstep/strategies/nn/sharded_embedding.h"

namespace lockstep {

struct GrowingEmbeddingOptions {
  int64_t embedding_dim = 0;
  EmbeddingMode mode = EmbeddingMode::kNone;
  /// If false, ids are 0 to 2^b - 1, with b = row_bits_of(embedding_dim) bits, such as 55 for 16 columns, and
  /// each has a row of its own. If true, any int64 is an id: others are hashed to b bits, so that two of n of
  /// them share a row with a probability of about n^2 / 2^(b + 1).
  bool hash_ids = false;
  InitialValues initial_values = NormalValues{.std = 0.01};
  /// `min_frequency`: number of updates with the id from which on it has a row, at most 32767; until then,
  /// lookups give its initial values. `steps_to_live`: the row is removed after this many updates of its
  /// server without it. Ids without a row share counters, so a count may be too high, and a row that was
  /// removed may come back sooner than after `min_frequency` updates. Counters are halved every
  /// `steps_to_live` updates; without it they never age, so in a long training ever fewer ids are held back.
  RowFilter row_filter{};
  /// Limit of the memory of all servers together for this table: rows, optimizer state, counts and index. If
  /// there is no room for a new row, it replaces the least recently used row. A server has
  /// an equal part of the limit. While a server saves a checkpoint, it holds a second copy of its rows,
  /// beyond the limit. 0: no limit.
  int64_t max_bytes = 0;
  torch::ScalarType dtype = torch::kFloat;
};

/// A ShardedEmbedding whose ids are not known in advance: servers make a row when its id occurs often enough,
/// and remove it when it was unused for long. Before and after, an id has its initial values, which depend
/// only on their seed and the id. Only for a ParameterServerStrategy; other strategies refuse it.
///
/// Counts, ages and "unused" are about updates; lookups alone change nothing. Two trainings with the same
/// sequence of updates have the same rows. Its optimizer must not keep state for each row in this process:
/// use SGD, FusedAdagrad or SparseAdam.
///
/// Servers that resume from a checkpoint of a ShardedEmbedding of the same name take over its rows, as those
/// of ids 0 to n - 1. Neither of the two tables may have `hash_ids` then: a table that grows with `hash_ids`
/// refuses such a checkpoint, but does not see whether the other one had them.
///
/// Example:
///
///     auto table = strategy.scope([](ReplicaContext&) {
///       return GrowingEmbedding(GrowingEmbeddingOptions{
///           .embedding_dim = 16, .row_filter = {.min_frequency = 3}, .max_bytes = int64_t{8} << 30});
///     });
class GrowingEmbeddingImpl : public ShardedEmbeddingImpl, public GrowingTable {
 public:
  /// Throws InvalidArgument for columns that row_bits_of() refuses, a negative limit, and values that
  /// make_values() refuses.
  explicit GrowingEmbeddingImpl(const GrowingEmbeddingOptions& options);

  /// Returns the rows of ids, which have no order; see scattered_row().
  torch::Tensor rows_of(const torch::Tensor& ids) const override;
  RowGrowth row_growth() const override { return growth_; }
  /// Throws InvalidArgument, because only parameter servers have such a table.
  void make_table() override;
  /// Not available: rows have no order. Look up the ids instead.
  torch::Tensor read_rows(int64_t begin, int64_t end) const = delete;
  torch::Tensor read_rows() const = delete;
  void pretty_print(std::ostream& stream) const override;

 private:
  const RowGrowth growth_;
};

/// Holds a GrowingEmbeddingImpl, as TORCH_MODULE's classes do.
class GrowingEmbedding : public torch::nn::ModuleHolder<GrowingEmbeddingImpl> {
 public:
  using torch::nn::ModuleHolder<GrowingEmbeddingImpl>::ModuleHolder;
  using Impl = GrowingEmbeddingImpl;

  /// Returns the same module as a ShardedEmbedding, for code that takes tables of either kind.
  ShardedEmbedding sharded() const { return {std::shared_ptr<ShardedEmbeddingImpl>(ptr())}; }
};

}  // namespace lockstep
