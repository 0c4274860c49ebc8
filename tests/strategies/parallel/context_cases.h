#pragma once

#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep {

struct AttentionSizes {
  int64_t batch = 2;
  int64_t heads = 4;
  int64_t kv_heads = 4;
  int64_t tokens = 16;
  int64_t head_dim = 8;
};

/// Attention over a whole sequence on one device, with gradients of (out * weights).sum(): the oracle.
struct WholeAttention {
  WholeAttention(const AttentionSizes& sizes, bool is_causal, std::optional<double> scale = std::nullopt,
                 at::ScalarType dtype = torch::kDouble) {
    const auto values = [&](int64_t heads, double phase) {
      const int64_t count = sizes.batch * heads * sizes.tokens * sizes.head_dim;
      return torch::sin(1.7 * torch::arange(count, torch::kDouble) + phase)
          .mul_(2)
          .reshape({sizes.batch, heads, sizes.tokens, sizes.head_dim})
          .to(dtype);
    };
    q = values(sizes.heads, 1).requires_grad_();
    k = values(sizes.kv_heads, 2).requires_grad_();
    v = values(sizes.kv_heads, 3).requires_grad_();
    weights = values(sizes.heads, 4);
    // LibTorch's attention without its fused kernels, one of which computes the blocks.
    const int64_t group = sizes.heads / sizes.kv_heads;
    out = std::get<0>(at::_scaled_dot_product_attention_math(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), {}, 0.0, is_causal, {}, scale));
    const auto gradients =
        torch::autograd::grad({(out * weights).sum()}, {q, k, v}, {}, /*retain_graph=*/true);
    q.mutable_grad() = gradients[0];
    k.mutable_grad() = gradients[1];
    v.mutable_grad() = gradients[2];
  }

  torch::Tensor q, k, v;  ///< with their gradients
  torch::Tensor weights;
  torch::Tensor out;
};

inline void expect_near(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  if (actual.numel() == 0) return;
  const auto difference = (actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max();
  EXPECT_LE(difference.item<double>(), tolerance);
}

}  // namespace lockstep
