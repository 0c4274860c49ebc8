#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_cache.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/models/gpt/internal/rotary_positions.h"
#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/strategies/parallel/mixture_of_experts.h"
#include "lockstep/strategies/parallel/parallel_linear.h"

namespace lockstep {

/// The values that all layers share in one pass of tokens through the model.
struct GptPass {
  RotaryFactors rotary;
  torch::Tensor mask;  ///< see AttentionOptions
  bool is_causal = true;
  bool is_training = false;
  /// Whether blocks have experts and take and return columns of their routers' losses: see
  /// with_routing_columns().
  bool collects_routing = false;
  GptCache* cache = nullptr;  ///< null: the tokens see each other alone
  /// The axis along which each rank has a shard of the sequence between layers that are cut; null: the whole.
  const ParallelAxis* shards = nullptr;
  /// Attention between the tokens of the ranks along a context axis; null: this rank has all tokens.
  std::shared_ptr<ContextParallelAttentionImpl> context = nullptr;
  std::optional<ContextOrder> order = std::nullopt;  ///< this rank's tokens, with `context`
};

/// Makes the weights of the options' norm.
LayerWeights make_norm(const GptOptions& options);
/// Normalizes all features, or those of this rank's shard of the sequence.
torch::Tensor normalize(const torch::Tensor& x, const LayerWeights& norm, const GptOptions& options,
                        const ParallelAxis* shards);
/// Drops features in training: the same on all ranks, or each rank's own of its shard.
torch::Tensor dropout_in(const GptPass& pass, const torch::Tensor& x, double probability);

/// Features, and the sums of the losses of the routers that they came from: balance losses and z-losses of
/// each sequence, the same for each of its tokens.
struct RoutedFeatures {
  torch::Tensor features;  ///< [B, T, width]
  torch::Tensor routing;   ///< [B, T, 2]
};
/// Returns features with columns for the losses of routers, 0 so far: [B, T, width + 2]. What calls blocks
/// takes one tensor and returns one, as do the stages of a pipeline.
torch::Tensor with_routing_columns(const torch::Tensor& features);
RoutedFeatures split_routing(const torch::Tensor& x);
/// Returns the losses of each sequence, [B, ...], of columns [B, T, ...] that are the same for each of its
/// tokens: 0 if there are no tokens.
torch::Tensor routing_losses(const torch::Tensor& columns);

/// A layer of a Gpt: x plus attention(norm(x)), and that plus mlp(norm(that)), or a mixture of experts in the
/// MLP's place.
///
/// `qkv` has the rows of all query heads, then of all key heads, then of all value heads: one product instead
/// of three. Each head is a run of head_width rows, so that a layer can be cut by heads.
class GptBlockImpl : public torch::nn::Cloneable<GptBlockImpl> {
 public:
  /// `options` are complete. `layer` is the place of this layer's keys and values in caches.
  GptBlockImpl(const GptOptions& options, size_t layer);

  void reset() override;
  /// Keeps the parameters of this rank's heads and hidden features only. The ranks along the axis then
  /// compute the layer together. Call it once, when the layer has its values. It cannot be cloned afterwards.
  void cut(const ReplicaAxis& axis);
  /// Keeps this rank's experts only, as cut() does for heads. The layer must have experts.
  void cut_experts(const ReplicaAxis& axis) { experts_->cut(axis); }
  /// Lets the ranks along a context axis have different tokens. The layer must have experts.
  void share_sequences(const ReplicaAxis& axis) { experts_->share_sequences(axis); }
  /// Maps [B, T, width], or this rank's shard of it, to the same shape. If the pass collects routing, both
  /// have columns of losses, to which the block adds those of its router.
  torch::Tensor forward(const torch::Tensor& input, const GptPass& pass);
  /// Returns null if the layer has one MLP.
  MixtureOfExpertsImpl* experts() const { return experts_.is_empty() ? nullptr : experts_.ptr().get(); }

 private:
  using Linear = std::function<torch::Tensor(const torch::Tensor& x)>;
  using Output = std::function<torch::Tensor(const torch::Tensor& x, const GptPass& pass)>;

  Linear make_linear(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias);
  LinearParameters whole_parameters(const std::string& name) const;
  std::shared_ptr<ColumnParallelLinearImpl> cut_outputs(const ReplicaAxis& axis, const std::string& name,
                                                        std::vector<int64_t> sections = {});
  Output make_output(const std::string& name, int64_t inputs, bool has_bias);
  Output cut_inputs(const ReplicaAxis& axis, const std::string& name);
  torch::Tensor to_parts(const torch::Tensor& x, const GptPass& pass) const;
  torch::Tensor own_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                              const torch::Tensor& values, const GptPass& pass) const;
  torch::Tensor attention(const torch::Tensor& x, const GptPass& pass);
  torch::Tensor mlp(const torch::Tensor& x, const GptPass& pass);
  MixtureOutput mix(const torch::Tensor& x, const GptPass& pass) const;

  GptOptions options_;  ///< once it is cut, with this rank's heads and hidden width
  size_t layer_;
  std::shared_ptr<ColumnParallelLinearImpl> cut_qkv_;  ///< null: the layer is whole
  LayerWeights attention_norm_{nullptr};
  Linear qkv_;
  Output attention_output_;
  LayerWeights mlp_norm_{nullptr};
  Linear gate_;  ///< for SwiGLU
  Linear up_;
  Output down_;
  MixtureOfExperts experts_{nullptr};  ///< in place of the MLP
};
TORCH_MODULE(GptBlock);

}  // namespace lockstep
