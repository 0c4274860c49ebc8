#include "lockstep/models/gpt/internal/attention.h"

#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>
#include <tuple>

namespace lockstep {

torch::Tensor attend(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                     const AttentionOptions& options) {
  const auto mask = options.mask.defined() ? std::optional(options.mask) : std::nullopt;
  const bool shares_keys = queries.size(1) != keys.size(1);
  if (options.dropout > 0) {
    return std::get<0>(at::_scaled_dot_product_attention_math(
        queries, keys, values, mask, options.dropout, options.is_causal, /*dropout_mask=*/std::nullopt,
        /*scale=*/std::nullopt, shares_keys));
  }
  return at::scaled_dot_product_attention(queries, keys, values, mask, /*dropout_p=*/0, options.is_causal,
                                          /*scale=*/std::nullopt, shares_keys);
}

}  // namespace lockstep
