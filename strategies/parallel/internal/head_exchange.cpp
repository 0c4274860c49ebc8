#include "lockstep/strategies/parallel/internal/head_exchange.h"

#include <ATen/Functions.h>

#include <vector>

#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

/// Repeats keys' heads so that the ranks divide them, and each rank's serve its own part of the `heads`.
at::Tensor with_heads_for(const at::Tensor& keys, int64_t ranks, int64_t heads) {
  const int64_t own = keys.size(1);
  if (own % ranks == 0) return keys;
  return keys.repeat_interleave((ranks % own == 0 ? ranks : heads) / own, 1);
}

}  // namespace

at::Tensor exchanged_attention(const std::optional<ReplicaBackends>& ranks, WaitClock* waits,
                               const ContextOrder& order, const AttentionInputs& inputs,
                               const AttentionRule& rule) {
  const auto attention = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0.0, rule.is_causal, rule.scale,
                                            /*enable_gqa=*/q.size(1) != k.size(1));
  };
  const auto exchange = [&](const std::vector<at::Tensor>& of_ranks) {
    std::optional<WaitClock::Wait> wait;
    if (waits != nullptr) wait.emplace(*waits);
    return all_to_all(*ranks, of_ranks);
  };
  if (!ranks) return attention(inputs.q, inputs.k, inputs.v);
  const int64_t count = order.ranks();
  const at::Tensor k = with_heads_for(inputs.k, count, inputs.q.size(1));
  const at::Tensor v = with_heads_for(inputs.v, count, inputs.q.size(1));
  const int64_t heads = inputs.q.size(1) / count;
  const int64_t kv_heads = k.size(1) / count;
  // Tokens come first, since they are what ranks have different numbers of.
  std::vector<at::Tensor> to_ranks;
  to_ranks.reserve(static_cast<size_t>(count));
  for (int64_t rank = 0; rank < count; ++rank) {
    const at::Tensor of_rank =
        at::cat({inputs.q.narrow(1, rank * heads, heads), k.narrow(1, rank * kv_heads, kv_heads),
                 v.narrow(1, rank * kv_heads, kv_heads)},
                1);
    to_ranks.push_back(of_rank.permute({2, 0, 1, 3}).contiguous());
  }
  const at::Tensor sequence = order.restore(at::cat(exchange(to_ranks), 0), 0).permute({1, 2, 0, 3});
  const auto parts = sequence.split_with_sizes({heads, kv_heads, kv_heads}, 1);
  const at::Tensor out =
      order.in_rank_order(attention(parts[0], parts[1], parts[2]), 2).permute({2, 0, 1, 3});
  std::vector<at::Tensor> back;
  back.reserve(static_cast<size_t>(count));
  int64_t begin = 0;
  for (int rank = 0; rank < order.ranks(); ++rank) {
    back.push_back(out.narrow(0, begin, order.tokens_of(rank)).contiguous());
    begin += order.tokens_of(rank);
  }
  return at::cat(exchange(back), 2).permute({1, 2, 0, 3});
}

}  // namespace lockstep
