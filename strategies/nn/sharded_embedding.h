#pragma once

#include <torch/nn/module.h>
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
  kNone,  ///< a row for each id
  kSum,   ///< the sum of the rows of a bag of ids; zeros for an empty one
  kMean,  ///< their mean, likewise
};

struct ShardedEmbeddingOptions {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  EmbeddingMode mode = EmbeddingMode::kNone;
  /// Any int64 is an id, and those that are no row's number are spread over the rows by a hash; two may come
  /// to the same row. Without it an id is the number of its row.
  bool hash_ids = false;
  InitialValues initial_values = NormalValues{.std = 0.01};
  /// Under a ParameterServerStrategy, which alone has one.
  RowFilter row_filter{};
  torch::ScalarType dtype = torch::kFloat;
};

/// An embedding table that may be larger than a process's memory. Under a ParameterServerStrategy its rows
/// are on the servers, cut among them, and each call reads those of the batch: every row once, however often
/// its id comes, by one message to each server. Under any other strategy it is an embedding with sparse
/// gradients, as torch::nn::Embedding and EmbeddingBag with `sparse`: the optimizer has to take these.
///
/// It gets its table by being registered anywhere in a module that Strategy::scope() gave out, and has no
/// memory for it before.
class ShardedEmbeddingImpl : public torch::nn::Module, public ServedTable {
 public:
  /// Throws InvalidArgument for less than one row or column, and for values that make_values() refuses.
  explicit ShardedEmbeddingImpl(const ShardedEmbeddingOptions& options);

  /// For kNone ids of any shape to [..., embedding_dim]. For the other modes a bag in each row of ids [B, L],
  /// or bags one after another in ids [N], of which offsets [B] say where each begins, to [B, embedding_dim].
  /// Ids are int64 on any device, the result is on the parameter's. Blocks while rows are read.
  ///
  /// Throws InvalidArgument for other dtypes and shapes, for offsets that do not ascend from 0 to N at most,
  /// for an id that is no row, and as TableReader::look_up(). Backward throws it where ids were changed in
  /// place meanwhile, and with create_graph: there are no second derivatives.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& offsets = {});

  /// A copy of rows `begin` to `end` - 1, on the CPU, as they are now: [end - begin, embedding_dim]. Blocks
  /// while they are read. Throws InvalidArgument for rows that there are not and for a table that there is
  /// not yet, and as TableReader::read_rows().
  torch::Tensor read_rows(int64_t begin, int64_t end) const;
  /// Of all.
  torch::Tensor read_rows() const { return read_rows(0, options_.num_embeddings); }

  const ShardedEmbeddingOptions& options() const { return options_; }
  /// The id itself, or where its hash leads.
  torch::Tensor rows_of(const torch::Tensor& ids) const override;

  /// Throws InvalidArgument where it has a row filter.
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
  /// The rows of the ids, or with offsets, on the CPU, of bags of them.
  torch::Tensor gather(const torch::Tensor& ids, const torch::Tensor& offsets);

  ShardedEmbeddingOptions options_;
  bool is_made_ = false;
  std::shared_ptr<TableReader> reader_;
};
TORCH_MODULE(ShardedEmbedding);

}  // namespace lockstep
