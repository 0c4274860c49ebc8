#include "lockstep/strategies/sharded_embedding.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cstdint>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/module_state.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// The gradient of rows that were read of a table, as a sparse one of the table.
class ReadRowsBackward final : public Node {
 public:
  ReadRowsBackward(torch::Tensor rows, std::vector<int64_t> table_sizes)
      : rows_(std::move(rows)), table_sizes_(std::move(table_sizes)) {}

  std::string name() const override { return "ReadRowsBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {torch::Tensor()};
    auto gradient = at::_sparse_coo_tensor_unsafe(rows_.unsqueeze(0), gradients[0], table_sizes_,
                                                  gradients[0].options().layout(at::kSparse));
    return {gradient._coalesced_(true)};  // they ascend, each once
  }

 private:
  torch::Tensor rows_;
  std::vector<int64_t> table_sizes_;
};

/// Of the table's shape, with the memory of one number.
torch::Tensor stand_in(const ShardedEmbeddingOptions& options, torch::Device device) {
  return torch::zeros({1, 1}, torch::TensorOptions(options.dtype).device(device))
      .expand({options.num_embeddings, options.embedding_dim});
}

ShardedEmbeddingOptions checked(const ShardedEmbeddingOptions& options) {
  if (options.num_embeddings < 1 || options.embedding_dim < 1)
    throw InvalidArgument(
        c10::str("[ShardedEmbedding] expected a table of 1 row and column or more, but got ",
                 options.num_embeddings, " by ", options.embedding_dim));
  make_values(options.initial_values, {0, 0}, torch::empty({0, options.embedding_dim}, options.dtype));
  return options;
}

/// The finalizer of MurmurHash3 (Appleby, 2011), whose every bit depends on every bit of the id.
torch::Tensor hash_of(const torch::Tensor& ids) {
  const auto mix = [](const torch::Tensor& value) {
    return value.bitwise_xor(value.bitwise_right_shift(33).bitwise_and((int64_t{1} << 31) - 1));
  };
  auto hash = mix(ids) * static_cast<int64_t>(0xff51afd7ed558ccdULL);
  hash = mix(hash) * static_cast<int64_t>(0xc4ceb9fe1a85ec53ULL);
  return mix(hash).bitwise_and(std::numeric_limits<int64_t>::max());
}

}  // namespace

ShardedEmbeddingImpl::ShardedEmbeddingImpl(const ShardedEmbeddingOptions& options)
    : options_(checked(options)) {
  weight = register_parameter("weight", stand_in(options_, torch::kCPU));
}

void ShardedEmbeddingImpl::make_table() {
  if (is_made_ || reader_) return;
  if (!options_.row_filter.takes_all())
    throw InvalidArgument(
        "[ShardedEmbedding] expected no row_filter, which parameter servers alone have, but got one");
  const torch::NoGradGuard no_grad;
  const auto like = torch::empty({0, options_.embedding_dim}, options_.dtype);
  weight.set_data(
      make_values(options_.initial_values, {0, options_.num_embeddings}, like).to(weight.device()));
  is_made_ = true;
}

void ShardedEmbeddingImpl::read_from(std::shared_ptr<TableReader> reader) {
  reader_ = std::move(reader);
}

void ShardedEmbeddingImpl::to(torch::Device device, bool non_blocking) {
  if (!stands_for_table(weight)) return Module::to(device, non_blocking);
  const torch::NoGradGuard no_grad;
  weight.set_data(stand_in(options_, device));
}

void ShardedEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ShardedEmbedding(num_embeddings=" << options_.num_embeddings
         << ", embedding_dim=" << options_.embedding_dim << ")";
}

torch::Tensor ShardedEmbeddingImpl::rows_of(const torch::Tensor& ids) const {
  if (ids.scalar_type() != torch::kLong)
    throw InvalidArgument(c10::str("[ShardedEmbedding] expected ids of int64, but got ", ids.scalar_type()));
  if (options_.hash_ids) return hash_of(ids).remainder(options_.num_embeddings);
  if (ids.numel() == 0 || !ids.is_cpu()) return ids;
  const auto [least, most] = ids.aminmax();
  for (const auto& id : {least.item<int64_t>(), most.item<int64_t>()}) {
    if (id < 0 || id >= options_.num_embeddings)
      throw InvalidArgument(c10::str("[ShardedEmbedding] expected ids from 0 to ",
                                     options_.num_embeddings - 1, ", but got ", id));
  }
  return ids;
}

ShardedEmbeddingImpl::Lookup ShardedEmbeddingImpl::look_up(const torch::Tensor& ids) {
  if (is_made_) return {.rows = weight, .places = rows_of(ids).to(weight.device())};
  if (!reader_)
    throw InvalidArgument(
        "[ShardedEmbedding] expected a table, but it has none yet: make the module in strategy.scope(), or "
        "call make_table()");
  const auto read = reader_->look_up(*this, ids);
  Lookup lookup{.rows = read.values.to(weight.device(), weight.scalar_type(), /*non_blocking=*/true),
                .places = read.places.to(weight.device())};
  if (at::GradMode::is_enabled() && weight.requires_grad()) {
    const std::shared_ptr<Node> node(
        new ReadRowsBackward(read.rows.to(weight.device()), weight.sizes().vec()),
        torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(weight));
    torch::autograd::create_gradient_edge(lookup.rows, node);
  }
  return lookup;
}

torch::Tensor ShardedEmbeddingImpl::forward(const torch::Tensor& ids, const torch::Tensor& offsets) {
  const bool has_bags = options_.mode != EmbeddingMode::kNone;
  if (offsets.defined() && !has_bags)
    throw InvalidArgument("[ShardedEmbedding] expected no offsets, but got some: it has a row for each id");
  if (has_bags && !offsets.defined()) {
    if (ids.dim() != 2)
      throw InvalidArgument(c10::str(
          "[ShardedEmbedding] expected bags of ids [B, L], or ids [N] and offsets, but got ids of shape ",
          ids.sizes()));
    return reduce_bags(ids.flatten(),
                       torch::arange(ids.size(0), ids.options().dtype(torch::kLong)) * ids.size(1));
  }
  if (!has_bags) {
    const auto [rows, places] = look_up(ids);
    return torch::embedding(rows, places, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, is_made_);
  }
  if (ids.dim() != 1 || offsets.dim() != 1 || offsets.scalar_type() != torch::kLong)
    throw InvalidArgument(
        c10::str("[ShardedEmbedding] expected ids [N] and offsets [B] of int64, but got ids of shape ",
                 ids.sizes(), " and offsets of shape ", offsets.sizes()));
  const auto ends = torch::cat({offsets, torch::full({1}, ids.numel(), offsets.options())});
  if (offsets.numel() > 0 && (offsets[0].item<int64_t>() != 0 || (ends.diff() < 0).any().item<bool>()))
    throw InvalidArgument(c10::str("[ShardedEmbedding] expected offsets that ascend from 0 to ", ids.numel(),
                                   " at most, but they do not"));
  return reduce_bags(ids, offsets);
}

/// Of checked shapes.
torch::Tensor ShardedEmbeddingImpl::reduce_bags(const torch::Tensor& ids, const torch::Tensor& offsets) {
  const auto [rows, places] = look_up(ids);
  if (offsets.numel() == 0) return torch::embedding(rows, places, -1, false, is_made_);  // [0, embedding_dim]
  const int64_t mode = options_.mode == EmbeddingMode::kSum ? 0 : 1;
  return std::get<0>(torch::embedding_bag(rows, places, offsets.to(weight.device()),
                                          /*scale_grad_by_freq=*/false, mode, is_made_));
}

}  // namespace lockstep
