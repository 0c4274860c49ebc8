#include "lockstep/strategies/parallel/internal/attention_block.h"

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <tuple>

namespace lockstep {
namespace {

bool takes_flash(const at::Tensor& q) {
  return q.is_cpu();
}

/// The kernels read the elements of a head one after another.
at::Tensor with_dense_heads(const at::Tensor& value) {
  return value.stride(-1) == 1 ? value : value.contiguous();
}

/// Returns [batch, kv_heads, heads / kv_heads, ...], a view.
at::Tensor by_kv_head(const at::Tensor& value, int64_t kv_heads) {
  return value.unflatten(1, {kv_heads, value.size(1) / kv_heads});
}

/// The scores of some of the queries, with those that share a key's head one after another.
struct ScoreTile {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t group = 1;  ///< heads / kv_heads

  /// Returns rows [batch, kv_heads, group * length, ...] of [batch, heads, queries, ...].
  at::Tensor rows(const at::Tensor& value, int64_t kv_heads) const {
    return by_kv_head(value.narrow(2, begin, length), kv_heads).flatten(2, 3);
  }
  /// The inverse of rows().
  at::Tensor by_head(const at::Tensor& rows) const {
    return rows.unflatten(2, {group, length}).flatten(1, 2);
  }
  /// Hides the keys that come after a query in scores of its rows.
  void mask_(const at::Tensor& scores) const {
    const auto options = scores.options().dtype(at::kLong);
    const at::Tensor queries = at::arange(begin, begin + length, options).unsqueeze(-1);
    const at::Tensor is_after = at::arange(scores.size(-1), options).unsqueeze(0).gt(queries);
    scores.unflatten(2, {group, length}).masked_fill_(is_after, -std::numeric_limits<double>::infinity());
  }
};

template <typename Function>
void for_each_tile(const AttentionInputs& inputs, const Function& function) {
  const int64_t queries = inputs.q.size(2);
  for (int64_t begin = 0; begin < queries; begin += kTileQueries)
    function(ScoreTile{begin, std::min(kTileQueries, queries - begin), inputs.q.size(1) / inputs.k.size(1)});
}

/// Returns the inputs in a dtype that is long enough to add many of them.
AttentionInputs exact_inputs(const AttentionInputs& inputs) {
  const auto dtype = at::toOpMathType(inputs.q.scalar_type());
  return {inputs.q.to(dtype), inputs.k.to(dtype), inputs.v.to(dtype)};
}

at::Tensor scores_of(const ScoreTile& tile, const AttentionInputs& exact, const AttentionRule& rule) {
  const at::Tensor rows = tile.rows(exact.q, exact.k.size(1)).mul(rule.scale);
  at::Tensor scores = rows.matmul(exact.k.transpose(-1, -2));
  if (rule.is_causal) tile.mask_(scores);
  return scores;
}

}  // namespace

AttentionBlock attend_by_flash(const AttentionInputs& inputs, const AttentionRule& rule) {
  const at::Tensor k = with_dense_heads(inputs.k);
  const at::Tensor v = with_dense_heads(inputs.v);
  const at::Tensor q = by_kv_head(with_dense_heads(inputs.q), k.size(1));
  const int64_t group = q.size(2);
  AttentionBlock block;
  for (int64_t member = 0; member < group; ++member) {
    auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.select(2, member), k, v, /*dropout_p=*/0.0, rule.is_causal, {}, rule.scale);
    if (group == 1) return {std::move(out), std::move(log_sums)};
    if (!block.out.defined()) {
      block.out = at::empty(inputs.q.sizes(), out.options());
      block.log_sums = at::empty(inputs.q.sizes().slice(0, 3), log_sums.options());
    }
    by_kv_head(block.out, k.size(1)).select(2, member).copy_(out);
    by_kv_head(block.log_sums, k.size(1)).select(2, member).copy_(log_sums);
  }
  return block;
}

AttentionGradients attend_by_flash_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                            const AttentionBlock& whole, const AttentionRule& rule) {
  const at::Tensor k = with_dense_heads(inputs.k);
  const at::Tensor v = with_dense_heads(inputs.v);
  const int64_t kv_heads = k.size(1);
  const auto by_member = [&](const at::Tensor& value) {
    return by_kv_head(with_dense_heads(value), kv_heads);
  };
  const at::Tensor q = by_member(inputs.q);
  const at::Tensor out = by_member(whole.out.to(inputs.q.scalar_type()));
  const at::Tensor of_out = by_member(gradient.to(inputs.q.scalar_type()));
  const at::Tensor log_sums = by_kv_head(whole.log_sums, kv_heads);
  const int64_t group = q.size(2);
  AttentionGradients gradients;
  for (int64_t member = 0; member < group; ++member) {
    auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of_out.select(2, member), q.select(2, member), k, v, out.select(2, member),
        log_sums.select(2, member), /*dropout_p=*/0.0, rule.is_causal, {}, rule.scale);
    if (group == 1) return {std::move(of_q), std::move(of_k), std::move(of_v)};
    if (!gradients.q.defined()) {
      gradients.q = at::empty(inputs.q.sizes(), of_q.options());
      gradients.k = std::move(of_k);
      gradients.v = std::move(of_v);
    } else {
      gradients.k.add_(of_k);
      gradients.v.add_(of_v);
    }
    by_kv_head(gradients.q, kv_heads).select(2, member).copy_(of_q);
  }
  return gradients;
}

AttentionBlock attend_by_products(const AttentionInputs& inputs, const AttentionRule& rule) {
  const AttentionInputs exact = exact_inputs(inputs);
  AttentionBlock block{at::empty(inputs.q.sizes(), exact.q.options()),
                       at::empty(inputs.q.sizes().slice(0, 3), exact.q.options())};
  for_each_tile(inputs, [&](const ScoreTile& tile) {
    at::Tensor scores = scores_of(tile, exact, rule);
    const at::Tensor log_sums = scores.logsumexp(-1, /*keepdim=*/true);
    scores.sub_(log_sums).exp_();
    block.out.narrow(2, tile.begin, tile.length).copy_(tile.by_head(scores.matmul(exact.v)));
    block.log_sums.narrow(2, tile.begin, tile.length).copy_(tile.by_head(log_sums.squeeze(-1)));
  });
  return block;
}

/// With weights P = exp(score - log_sum), the gradient for the scores is P * (gradient v^T - rowsum(gradient
/// * out)), as in Dao et al., "FlashAttention" (2022).
AttentionGradients attend_by_products_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                               const AttentionBlock& whole, const AttentionRule& rule) {
  const AttentionInputs exact = exact_inputs(inputs);
  const int64_t kv_heads = exact.k.size(1);
  const auto dtype = exact.q.scalar_type();
  AttentionGradients gradients{at::empty(inputs.q.sizes(), exact.q.options()), at::zeros_like(exact.k),
                               at::zeros_like(exact.v)};
  for_each_tile(inputs, [&](const ScoreTile& tile) {
    at::Tensor weights = scores_of(tile, exact, rule);
    weights.sub_(tile.rows(whole.log_sums, kv_heads).unsqueeze(-1)).exp_();
    const at::Tensor of_out = tile.rows(gradient, kv_heads).to(dtype);
    gradients.v.add_(weights.transpose(-1, -2).matmul(of_out));
    const at::Tensor shared = of_out.mul(tile.rows(whole.out, kv_heads)).sum(-1, /*keepdim=*/true);
    const at::Tensor of_scores =
        weights.mul_(of_out.matmul(exact.v.transpose(-1, -2)).sub_(shared)).mul_(rule.scale);
    gradients.q.narrow(2, tile.begin, tile.length).copy_(tile.by_head(of_scores.matmul(exact.k)));
    gradients.k.add_(of_scores.transpose(-1, -2).matmul(tile.rows(exact.q, kv_heads)));
  });
  return gradients;
}

AttentionBlock attend(const AttentionInputs& inputs, const AttentionRule& rule) {
  return takes_flash(inputs.q) ? attend_by_flash(inputs, rule) : attend_by_products(inputs, rule);
}

AttentionGradients attend_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                   const AttentionBlock& whole, const AttentionRule& rule) {
  return takes_flash(inputs.q) ? attend_by_flash_backward(gradient, inputs, whole, rule)
                               : attend_by_products_backward(gradient, inputs, whole, rule);
}

}  // namespace lockstep
