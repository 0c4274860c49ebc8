#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/replicas/replica_axis.h"

namespace lockstep {

/// Which tokens of a sequence each rank along an axis has.
enum class TokenOrder : uint8_t {
  kPlain,   ///< As many chunks as ranks; rank r has the r-th.
  kZigzag,  ///< Twice as many chunks as ranks; rank r has the r-th from the front and the r-th from the end.
};

/// Consecutive tokens of a sequence.
struct TokenRange {
  int64_t begin = 0;
  int64_t length = 0;

  bool operator==(const TokenRange&) const = default;
};

struct ContextOrderOptions {
  int64_t length = 0;  ///< of the whole sequence, in tokens
  int ranks = 1;
  int index = 0;  ///< of this rank
  TokenOrder order = TokenOrder::kZigzag;
};

/// A sequence of which each rank along an axis has some of the tokens. In causal attention, a token attends
/// to those before it, so that late tokens need more work than early ones: in zigzag order, all ranks have
/// the same. Chunks differ by at most one token, as do the ranks' numbers of tokens, so that any length will
/// do.
///
/// Example:
///
///     const ContextOrder order(replica.axis("context"), ids.size(1));
///     const auto own_ids = order.own_part(ids, 1);          // [examples, tokens of this rank]
///     const auto own_targets = order.own_part(targets, 1);  // the same tokens'
///     const auto x = tokens(own_ids) + positions(order.positions().to(ids.device()));
class ContextOrder {
 public:
  /// Throws InvalidArgument for a negative length, fewer ranks than 1, and an index that is not a rank's.
  explicit ContextOrder(const ContextOrderOptions& options);
  /// Takes the ranks from an axis of the mesh.
  ContextOrder(const ReplicaAxis& axis, int64_t length, TokenOrder order = TokenOrder::kZigzag);

  /// Number of tokens of the whole sequence.
  int64_t length() const { return options_.length; }
  int ranks() const { return options_.ranks; }
  /// Place of this rank along the axis.
  int index() const { return options_.index; }
  TokenOrder order() const { return options_.order; }

  /// Returns the chunks of a rank, in the order in which it has them: one, or two in zigzag order. Chunks may
  /// be empty.
  std::vector<TokenRange> chunks_of(int rank) const;
  /// Returns a rank's number of tokens.
  int64_t tokens_of(int rank) const;

  /// Returns the places of this rank's tokens in the whole sequence, int64 [tokens] on the CPU, for learned
  /// or rotary positions.
  torch::Tensor positions() const;
  /// Returns this rank's tokens out of a tensor that has all of them along `dim` (negative: from the end), as
  /// ids, targets or embeddings. Differentiable. Throws InvalidArgument for another number of tokens.
  torch::Tensor own_part(const torch::Tensor& whole, int64_t dim) const;
  /// Puts all ranks' tokens, one rank after another along `dim`, as `axis.all_gather(own, dim)` returns them,
  /// in the order of the sequence. Differentiable. Throws as own_part() does.
  torch::Tensor restore(const torch::Tensor& gathered, int64_t dim) const;
  /// Puts a whole sequence in the order in which the ranks have it, one rank after another: the inverse of
  /// restore().
  torch::Tensor in_rank_order(const torch::Tensor& whole, int64_t dim) const;

 private:
  int64_t check_tokens(const torch::Tensor& tensor, int64_t dim) const;

  ContextOrderOptions options_;
};

}  // namespace lockstep
