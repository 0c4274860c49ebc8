#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <iosfwd>
#include <memory>

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/row_filter.h"
#include "lockstep/parameter_server/variables/served_table.h"

namespace lockstep {

enum class EmbeddingMode {
  kNone,  ///< One row for each id.
  kSum,   ///< Sum of the rows of a bag of ids; zeros for an empty bag.
  kMean,  ///< Mean of the rows of a bag of ids; zeros for an empty bag.
};

struct ShardedEmbeddingOptions {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  EmbeddingMode mode = EmbeddingMode::kNone;
  /// If true, any int64 is an id, and a hash maps ids to rows; two ids may share a row. If false, an id is
  /// the number of its row.
  bool hash_ids = false;
  InitialValues initial_values = NormalValues{.std = 0.01};
  /// Only for a ParameterServerStrategy: other strategies refuse it.
  RowFilter row_filter{};
  torch::ScalarType dtype = torch::kFloat;
};

/// An embedding table that may be larger than a process's memory. Under a ParameterServerStrategy, its rows
/// are split over the servers, and each call reads the rows of its batch: every row once, however often its
/// id occurs, with one message to each server. Under any other strategy, it is an embedding with sparse
/// gradients, like torch::nn::Embedding and EmbeddingBag with `sparse`, so the optimizer must support these.
///
/// It gets its table, and the memory for it, when Strategy::scope() returns a module that it is registered in
/// at any depth.
///
/// Example:
///
///     auto table = strategy.scope([](ReplicaContext&) {
///       return ShardedEmbedding(ShardedEmbeddingOptions{.num_embeddings = 1'000'000, .embedding_dim = 64});
///     });
///     auto vectors = strategy.run([](ReplicaContext&, ShardedEmbedding& own, const torch::Tensor& ids) {
///       return own->forward(ids);
///     }, table, ids);
class ShardedEmbeddingImpl : public torch::nn::Module, public ServedTable {
 public:
  /// Throws InvalidArgument for less than one row or column, and for values that make_values() refuses.
  explicit ShardedEmbeddingImpl(const ShardedEmbeddingOptions& options);

  /// Looks up ids. With kNone, maps ids of any shape to [..., embedding_dim]. With the other modes, maps bags
  /// to [B, embedding_dim]: a bag is a row of ids [B, L], or the bags follow one another in ids [N], and
  /// offsets [B] give the start of each. Ids are int64 on any device; the result is on the parameter's
  /// device. Blocks while rows are read.
  ///
  /// Throws InvalidArgument for other dtypes and shapes, for offsets that do not ascend from 0 to at most N,
  /// and for an id without a row, and throws as TableReader::look_up(). On a GPU without parameter servers,
  /// the kernels check ids instead. Backward throws InvalidArgument if ids were changed in place meanwhile,
  /// and with create_graph: there are no second derivatives.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& offsets = {});

  /// Returns a copy of rows `begin` to `end` - 1 as they are now, on the CPU: [end - begin, embedding_dim].
  /// Blocks while they are read. Throws InvalidArgument for rows that do not exist and if there is no table
  /// yet, and throws as TableReader::read_rows().
  torch::Tensor read_rows(int64_t begin, int64_t end) const;
  /// Returns a copy of all rows.
  torch::Tensor read_rows() const { return read_rows(0, options_.num_embeddings); }

  const ShardedEmbeddingOptions& options() const { return options_; }
  /// Returns each id itself, or with `hash_ids` the row that its hash maps to.
  torch::Tensor rows_of(const torch::Tensor& ids) const override;

  /// Throws InvalidArgument if it has a row filter.
  void make_table() override;
  void read_from(std::shared_ptr<TableReader> reader) override;
  const torch::Tensor& table() const override { return weight; }
  InitialValues initial_values() const override { return options_.initial_values; }
  RowFilter row_filter() const override { return options_.row_filter; }
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor weight;  ///< [num_embeddings, embedding_dim]

 protected:
  /// @cond
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(torch::Tensor())})
  /// @endcond

 private:
  void check_has_table() const;
  /// Returns the rows of the ids or, with offsets (on the CPU), of bags of ids.
  torch::Tensor gather(const torch::Tensor& ids, const torch::Tensor& offsets);

  ShardedEmbeddingOptions options_;
  bool is_made_ = false;
  std::shared_ptr<TableReader> reader_;
};
TORCH_MODULE(ShardedEmbedding);

}  // namespace lockstep
