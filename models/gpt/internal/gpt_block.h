#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>

#include "lockstep/models/gpt/gpt_cache.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/models/gpt/internal/rotary_positions.h"

namespace lockstep {

/// The values that all layers share in one pass of tokens through the model.
struct GptPass {
  RotaryFactors rotary;
  torch::Tensor mask;  ///< see AttentionOptions
  bool is_causal = true;
  bool is_training = false;
  GptCache* cache = nullptr;  ///< null: the tokens see each other alone
};

/// Makes the weights of the options' norm.
LayerWeights make_norm(const GptOptions& options);
torch::Tensor normalize(const torch::Tensor& x, const LayerWeights& norm, const GptOptions& options);

/// A layer of a Gpt: x plus attention(norm(x)), and that plus mlp(norm(that)).
///
/// `qkv` has the rows of all query heads, then of all key heads, then of all value heads: one product instead
/// of three. Each head is a run of head_width rows, so that a layer can be cut by heads.
class GptBlockImpl : public torch::nn::Cloneable<GptBlockImpl> {
 public:
  /// `options` are complete. `layer` is the place of this layer's keys and values in caches.
  GptBlockImpl(const GptOptions& options, size_t layer);

  void reset() override;
  /// Maps [B, T, width] to the same shape.
  torch::Tensor forward(const torch::Tensor& x, const GptPass& pass);

 private:
  torch::Tensor attention(const torch::Tensor& x, const GptPass& pass);
  torch::Tensor mlp(const torch::Tensor& x);

  GptOptions options_;
  size_t layer_;
  LayerWeights attention_norm_{nullptr};
  LayerWeights qkv_{nullptr};
  LayerWeights attention_output_{nullptr};
  LayerWeights mlp_norm_{nullptr};
  LayerWeights gate_{nullptr};  ///< for SwiGLU
  LayerWeights up_{nullptr};
  LayerWeights down_{nullptr};
};
TORCH_MODULE(GptBlock);

}  // namespace lockstep
