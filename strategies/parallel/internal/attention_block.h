#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The rule by which scores of attention become weights.
struct AttentionRule {
  double scale = 1.0;      ///< of scores q k^T
  bool is_causal = false;  ///< query i attends to keys 0 to i only
};

/// Attention of queries [batch, heads, queries, head_dim] over keys and values [batch, kv_heads, keys,
/// head_dim], of which each serves heads / kv_heads heads one after another.
struct AttentionBlock {
  at::Tensor out;       ///< [batch, heads, queries, head_dim], in the queries' dtype or a longer one
  at::Tensor log_sums;  ///< [batch, heads, queries]: the logarithm of each query's sum of exp(score)
};

struct AttentionGradients {
  at::Tensor q;  ///< like the queries, in their dtype or a longer one
  at::Tensor k;  ///< like the keys
  at::Tensor v;  ///< like the values
};

/// Inputs of attend(), and for its backward, what came of them together with other keys.
struct AttentionInputs {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

/// Computes one block, by LibTorch's flash kernel on CPUs and by matrix products elsewhere. No tensor may be
/// empty.
AttentionBlock attend(const AttentionInputs& inputs, const AttentionRule& rule);
/// Returns the block's part of the gradients. `whole` has the outputs over all keys, of which the block's are
/// some, and `gradient` is that of its output: a weight is exp(score - log_sum), whatever the block.
AttentionGradients attend_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                   const AttentionBlock& whole, const AttentionRule& rule);

// The two ways of attend(). The second keeps the scores of `kTileQueries` queries at a time.

AttentionBlock attend_by_flash(const AttentionInputs& inputs, const AttentionRule& rule);
AttentionGradients attend_by_flash_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                            const AttentionBlock& whole, const AttentionRule& rule);

inline constexpr int64_t kTileQueries = 256;
AttentionBlock attend_by_products(const AttentionInputs& inputs, const AttentionRule& rule);
AttentionGradients attend_by_products_backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                                               const AttentionBlock& whole, const AttentionRule& rule);

}  // namespace lockstep
