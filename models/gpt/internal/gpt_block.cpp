#include "lockstep/models/gpt/internal/gpt_block.h"

#include <ATen/ops/rms_norm.h>
#include <torch/utils.h>

#include <tuple>
#include <vector>

#include "lockstep/models/gpt/internal/attention.h"

namespace lockstep {

LayerWeights make_norm(const GptOptions& options) {
  return LayerWeights(
      LayerWeightsOptions{.shape = {options.width}, .has_bias = options.norm == GptNorm::kLayerNorm});
}

torch::Tensor normalize(const torch::Tensor& x, const LayerWeights& norm, const GptOptions& options) {
  if (options.norm == GptNorm::kRmsNorm)
    return at::rms_norm(x, {options.width}, norm->weight, options.norm_epsilon);
  return torch::layer_norm(x, {options.width}, norm->weight, norm->bias, options.norm_epsilon);
}

GptBlockImpl::GptBlockImpl(const GptOptions& options, size_t layer) : options_(options), layer_(layer) {
  reset();
}

void GptBlockImpl::reset() {
  const int64_t width = options_.width;
  const int64_t queries = options_.num_heads * options_.head_width;
  const int64_t keys = options_.num_key_value_heads * options_.head_width;
  const auto dense = [](int64_t outputs, int64_t inputs, bool has_bias) {
    return LayerWeights(LayerWeightsOptions{.shape = {outputs, inputs}, .has_bias = has_bias});
  };
  attention_norm_ = register_module("attention_norm", make_norm(options_));
  qkv_ = register_module("qkv", dense(queries + 2 * keys, width, options_.has_attention_bias));
  attention_output_ = register_module("attention_output", dense(width, queries, options_.has_attention_bias));
  mlp_norm_ = register_module("mlp_norm", make_norm(options_));
  if (options_.activation == GptActivation::kSwiGlu)
    gate_ = register_module("gate", dense(options_.hidden_width, width, options_.has_mlp_bias));
  up_ = register_module("up", dense(options_.hidden_width, width, options_.has_mlp_bias));
  down_ = register_module("down", dense(width, options_.hidden_width, options_.has_mlp_bias));
}

torch::Tensor GptBlockImpl::attention(const torch::Tensor& x, const GptPass& pass) {
  const int64_t heads = options_.num_heads;
  const int64_t shared = options_.num_key_value_heads;
  const auto qkv = qkv_->linear(x).unflatten(-1, {heads + 2 * shared, options_.head_width});
  std::vector<torch::Tensor> parts;
  if (pass.rotary.is_defined()) {
    // Queries and keys are rotated together. split() joins gradients again in one piece, unlike narrow().
    const auto rotated_and_values = qkv.split_with_sizes({heads + shared, shared}, -2);
    parts = rotate(rotated_and_values[0], pass.rotary).split_with_sizes({heads, shared}, -2);
    parts.push_back(rotated_and_values[1]);
  } else {
    parts = qkv.split_with_sizes({heads, shared, shared}, -2);
  }
  for (auto& part : parts) part = part.transpose(1, 2);
  if (pass.cache != nullptr) std::tie(parts[1], parts[2]) = pass.cache->append(layer_, parts[1], parts[2]);
  const auto attended = attend(parts[0], parts[1], parts[2],
                               {.mask = pass.mask,
                                .is_causal = pass.is_causal,
                                .dropout = pass.is_training ? options_.attention_dropout : 0});
  return attention_output_->linear(attended.transpose(1, 2).flatten(2));
}

torch::Tensor GptBlockImpl::mlp(const torch::Tensor& x) {
  const auto hidden = up_->linear(x);
  switch (options_.activation) {
    case GptActivation::kGelu:
      return down_->linear(torch::gelu(hidden));
    case GptActivation::kGeluTanh:
      return down_->linear(torch::gelu(hidden, "tanh"));
    case GptActivation::kSwiGlu:
      break;
  }
  return down_->linear(torch::silu(gate_->linear(x)) * hidden);
}

torch::Tensor GptBlockImpl::forward(const torch::Tensor& x, const GptPass& pass) {
  const auto dropout = [&](const torch::Tensor& added) {
    return torch::dropout(added, options_.residual_dropout, pass.is_training);
  };
  const auto attended = x + dropout(attention(normalize(x, attention_norm_, options_), pass));
  return attended + dropout(mlp(normalize(attended, mlp_norm_, options_)));
}

}  // namespace lockstep
