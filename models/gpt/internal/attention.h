#pragma once

#include <torch/types.h>

namespace lockstep {

struct AttentionOptions {
  torch::Tensor
      mask;  ///< bool, broadcast to [B, heads, T, S]: true where a query sees a key; may be undefined
  bool is_causal = false;  ///< the i-th query sees the first i + 1 keys
  double dropout = 0;      ///< of the attention's weights
};

/// Returns the attention of queries [B, H, T, D] on keys and values [B, K, S, D], where K divides H and head
/// h takes keys h / (H / K). Dropout draws as at::dropout does, on any device: LibTorch's fused kernels draw
/// from the default generator of the GPU, which the threads of all replicas share, so that runs could not be
/// repeated.
torch::Tensor attend(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                     const AttentionOptions& options);

}  // namespace lockstep
