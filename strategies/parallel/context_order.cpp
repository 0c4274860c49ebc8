#include "lockstep/strategies/parallel/context_order.h"

#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Returns one of the `count` chunks of a sequence, of which the first have one token more if they cannot be
/// equal.
TokenRange chunk_of(int64_t length, int64_t chunk, int64_t count) {
  const int64_t least = length / count;
  const int64_t longer = length % count;
  return {chunk * least + std::min(chunk, longer), least + (chunk < longer ? 1 : 0)};
}

}  // namespace

ContextOrder::ContextOrder(const ContextOrderOptions& options) : options_(options) {
  if (options.length < 0) {
    throw InvalidArgument(
        c10::str("[ContextOrder] expected a sequence of 0 or more tokens, but got ", options.length));
  }
  if (options.ranks < 1)
    throw InvalidArgument(c10::str("[ContextOrder] expected 1 or more ranks, but got ", options.ranks));
  if (options.index < 0 || options.index >= options.ranks) {
    throw InvalidArgument(c10::str("[ContextOrder] expected an index of 0 to ", options.ranks - 1,
                                   ", but got ", options.index));
  }
}

ContextOrder::ContextOrder(const ReplicaAxis& axis, int64_t length, TokenOrder order)
    : ContextOrder({.length = length, .ranks = axis.size(), .index = axis.index(), .order = order}) {}

std::vector<TokenRange> ContextOrder::chunks_of(int rank) const {
  if (order() == TokenOrder::kPlain) return {chunk_of(length(), rank, ranks())};
  const int64_t count = 2 * int64_t{ranks()};
  return {chunk_of(length(), rank, count), chunk_of(length(), count - 1 - rank, count)};
}

int64_t ContextOrder::tokens_of(int rank) const {
  int64_t tokens = 0;
  for (const auto& chunk : chunks_of(rank)) tokens += chunk.length;
  return tokens;
}

torch::Tensor ContextOrder::positions() const {
  std::vector<at::Tensor> of_chunks;
  for (const auto& chunk : chunks_of(index()))
    of_chunks.push_back(at::arange(chunk.begin, chunk.begin + chunk.length, at::kLong));
  return at::cat(of_chunks);
}

int64_t ContextOrder::check_tokens(const torch::Tensor& tensor, int64_t dim) const {
  dim = at::maybe_wrap_dim(dim, tensor.dim());
  if (tensor.size(dim) == length()) return dim;
  throw InvalidArgument(c10::str("[ContextOrder] expected a tensor with ", length(),
                                 " tokens along dimension ", dim, ", but got ", tensor.sizes()));
}

torch::Tensor ContextOrder::own_part(const torch::Tensor& whole, int64_t dim) const {
  dim = check_tokens(whole, dim);
  const auto chunks = chunks_of(index());
  if (chunks.size() == 1) return whole.narrow(dim, chunks[0].begin, chunks[0].length);
  std::vector<at::Tensor> parts;
  parts.reserve(chunks.size());
  for (const auto& chunk : chunks) parts.push_back(whole.narrow(dim, chunk.begin, chunk.length));
  return at::cat(parts, dim);
}

torch::Tensor ContextOrder::restore(const torch::Tensor& gathered, int64_t dim) const {
  dim = check_tokens(gathered, dim);
  if (order() == TokenOrder::kPlain || ranks() == 1) return gathered;
  std::vector<at::Tensor> front;
  std::vector<at::Tensor> back;
  int64_t begin = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto chunks = chunks_of(rank);
    front.push_back(gathered.narrow(dim, begin, chunks[0].length));
    back.push_back(gathered.narrow(dim, begin + chunks[0].length, chunks[1].length));
    begin += chunks[0].length + chunks[1].length;
  }
  front.insert(front.end(), back.rbegin(), back.rend());
  return at::cat(front, dim);
}

torch::Tensor ContextOrder::in_rank_order(const torch::Tensor& whole, int64_t dim) const {
  dim = check_tokens(whole, dim);
  if (order() == TokenOrder::kPlain || ranks() == 1) return whole;
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks(); ++rank) {
    for (const auto& chunk : chunks_of(rank)) parts.push_back(whole.narrow(dim, chunk.begin, chunk.length));
  }
  return at::cat(parts, dim);
}

}  // namespace lockstep
