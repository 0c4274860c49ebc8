#include "lockstep/strategies/nn/growing_embedding.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/StringUtil.h>

#include <ostream>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// The finalizer of SplitMix (Steele, Lea and Flood, 2014): every bit of the hash depends on every bit of the
/// id.
uint64_t mixed_id(uint64_t id) {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9ULL;
  id = (id ^ (id >> 27)) * 0x94d049bb133111ebULL;
  return id ^ (id >> 31);
}

RowGrowth growth_of(const GrowingEmbeddingOptions& options) {
  if (options.max_bytes < 0)
    throw InvalidArgument(
        c10::str("[GrowingEmbedding] expected max_bytes of 0 or more, but got ", options.max_bytes));
  return {.max_bytes = options.max_bytes,
          .num_bits = row_bits_of(options.embedding_dim),
          .takes_numbered_rows = !options.hash_ids};
}

ShardedEmbeddingOptions sharded_options(const GrowingEmbeddingOptions& options) {
  return {.num_embeddings = int64_t{1} << row_bits_of(options.embedding_dim),
          .embedding_dim = options.embedding_dim,
          .mode = options.mode,
          .hash_ids = options.hash_ids,
          .initial_values = options.initial_values,
          .row_filter = options.row_filter,
          .dtype = options.dtype};
}

}  // namespace

GrowingEmbeddingImpl::GrowingEmbeddingImpl(const GrowingEmbeddingOptions& options)
    : ShardedEmbeddingImpl(sharded_options(options)), growth_(growth_of(options)) {}

void GrowingEmbeddingImpl::make_table() {
  throw InvalidArgument(
      "[GrowingEmbedding] expected a ParameterServerStrategy, whose servers make rows as their ids occur, "
      "but got "
      "a strategy without servers");
}

torch::Tensor GrowingEmbeddingImpl::rows_of(const torch::Tensor& ids) const {
  if (ids.scalar_type() != torch::kLong)
    throw InvalidArgument(c10::str("[GrowingEmbedding] expected ids of int64, but got ", ids.scalar_type()));
  const int64_t num_ids = int64_t{1} << growth_.num_bits;
  const auto from = ids.cpu().contiguous();
  auto rows = torch::empty_like(from);
  const auto* id = from.const_data_ptr<int64_t>();
  auto* row = rows.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < from.numel(); ++i) {
    int64_t own = id[i];
    if (own < 0 || own >= num_ids) {
      if (!options().hash_ids)
        throw InvalidArgument(c10::str("[GrowingEmbedding] expected ids from 0 to ", num_ids - 1,
                                       ", or hash_ids for others, but got ", own));
      own = static_cast<int64_t>(mixed_id(static_cast<uint64_t>(own)) & static_cast<uint64_t>(num_ids - 1));
    }
    row[i] = scattered_row(own, growth_.num_bits);
  }
  return rows.to(ids.device());
}

void GrowingEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::GrowingEmbedding(embedding_dim=" << options().embedding_dim
         << ", max_bytes=" << growth_.max_bytes << ")";
}

}  // namespace lockstep
