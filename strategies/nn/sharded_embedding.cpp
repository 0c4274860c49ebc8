#include "lockstep/strategies/nn/sharded_embedding.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <limits>
#include <ostream>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/pinned_memory.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/nn/internal/row_gather.h"

namespace lockstep {
namespace {

/// Returns a tensor with the table's shape and the memory of one number.
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

/// The finalizer of MurmurHash3 (Appleby, 2011): every bit of the hash depends on every bit of the id.
uint64_t hash_of(uint64_t id) {
  id = (id ^ (id >> 33)) * 0xff51afd7ed558ccdULL;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return id ^ (id >> 33);
}

/// Returns the row of each id: its hash without the highest bit, modulo the number of rows. CPU only.
torch::Tensor hashed_on_cpu(const torch::Tensor& ids, int64_t num_rows) {
  const auto from = ids.contiguous();
  auto rows = torch::empty_like(from);
  const auto* id = from.const_data_ptr<int64_t>();
  auto* row = rows.mutable_data_ptr<int64_t>();
  constexpr uint64_t kBits = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < from.numel(); ++i)
    row[i] = static_cast<int64_t>((hash_of(static_cast<uint64_t>(id[i])) & kBits) %
                                  static_cast<uint64_t>(num_rows));
  return rows;
}

/// Same as hashed_on_cpu(), on any device.
torch::Tensor hashed(const torch::Tensor& ids, int64_t num_rows) {
  const auto mix = [](const torch::Tensor& value) {
    return value.bitwise_xor(value.bitwise_right_shift(33).bitwise_and((int64_t{1} << 31) - 1));
  };
  auto hash = mix(ids) * static_cast<int64_t>(0xff51afd7ed558ccdULL);
  hash = mix(hash) * static_cast<int64_t>(0xc4ceb9fe1a85ec53ULL);
  return mix(hash).bitwise_and(std::numeric_limits<int64_t>::max()).remainder(num_rows);
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

void ShardedEmbeddingImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void ShardedEmbeddingImpl::to(torch::Dtype dtype, bool non_blocking) {
  if (is_made_) return Module::to(dtype, non_blocking);
  const torch::NoGradGuard no_grad;
  options_.dtype = dtype;
  weight.set_data(stand_in(options_, weight.device()));
}

void ShardedEmbeddingImpl::to(torch::Device device, bool non_blocking) {
  if (is_made_) return Module::to(device, non_blocking);
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
  if (options_.hash_ids)
    return ids.is_cpu() ? hashed_on_cpu(ids, options_.num_embeddings) : hashed(ids, options_.num_embeddings);
  if (ids.numel() == 0 || !ids.is_cpu()) return ids;  // a GPU's kernels check them
  const auto [least, most] = ids.aminmax();
  for (const auto& id : {least.item<int64_t>(), most.item<int64_t>()}) {
    if (id < 0 || id >= options_.num_embeddings)
      throw InvalidArgument(c10::str("[ShardedEmbedding] expected ids from 0 to ",
                                     options_.num_embeddings - 1, ", but got ", id));
  }
  return ids;
}

torch::Tensor ShardedEmbeddingImpl::read_rows(int64_t begin, int64_t end) const {
  if (begin < 0 || end < begin || end > options_.num_embeddings)
    throw InvalidArgument(c10::str("[ShardedEmbedding] expected rows from 0 to ", options_.num_embeddings,
                                   ", but got ", begin, " to ", end));
  check_has_table();
  if (!is_made_) return reader_->read_rows(*this, begin, end);
  const auto rows = weight.detach().slice(0, begin, end);
  return rows.is_cpu() ? rows.clone() : rows.cpu();
}

void ShardedEmbeddingImpl::check_has_table() const {
  if (is_made_ || reader_) return;
  throw InvalidArgument(
      "[ShardedEmbedding] expected a table, but it has none yet: make the module in strategy.scope(), or "
      "call make_table()");
}

torch::Tensor ShardedEmbeddingImpl::gather(const torch::Tensor& ids, const torch::Tensor& offsets) {
  check_has_table();
  RowGather gather{.table = weight, .is_mean = options_.mode == EmbeddingMode::kMean};
  if (is_made_) {
    gather.values = weight;
    gather.indices = rows_of(ids.to(weight.device()));
  } else {
    const auto read = reader_->look_up(*this, ids);
    gather.values = read.values.to(weight.device(), weight.scalar_type(), /*non_blocking=*/true);
    gather.indices = read.indices;
    gather.rows = read.rows;
  }
  const auto on_device = [&](const torch::Tensor& numbers) {
    return pinned_for(numbers, weight.device()).to(weight.device(), /*non_blocking=*/true);
  };
  gather.indices = on_device(gather.indices).flatten().contiguous();
  const bool has_gradient = torch::GradMode::is_enabled() && weight.requires_grad();
  if (gather.rows.defined() && has_gradient) gather.rows = on_device(gather.rows);
  if (offsets.defined()) gather.offsets = on_device(offsets);
  return gather_rows(gather);
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
    return gather(ids, torch::arange(ids.size(0), torch::kLong) * ids.size(1));
  }
  if (!has_bags) {
    auto sizes = ids.sizes().vec();
    sizes.push_back(options_.embedding_dim);
    return gather(ids, {}).view(sizes);
  }
  if (ids.dim() != 1 || offsets.dim() != 1 || offsets.scalar_type() != torch::kLong)
    throw InvalidArgument(
        c10::str("[ShardedEmbedding] expected ids [N] and offsets [B] of int64, but got ids of shape ",
                 ids.sizes(), " and offsets of shape ", offsets.sizes()));
  const auto begins = offsets.cpu().contiguous();
  const auto ends = torch::cat({begins, torch::full({1}, ids.numel(), torch::kLong)});
  if (begins.numel() > 0 && (begins[0].item<int64_t>() != 0 || (ends.diff() < 0).any().item<bool>()))
    throw InvalidArgument(c10::str("[ShardedEmbedding] expected offsets that ascend from 0 to ", ids.numel(),
                                   " at most, but they do not"));
  return gather(ids, begins);
}

}  // namespace lockstep
