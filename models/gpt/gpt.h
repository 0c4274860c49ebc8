#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt_cache.h"
#include "lockstep/models/gpt/gpt_cut.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/models/parts/model_parts.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/context_parallel_attention.h"
#include "lockstep/strategies/parallel/mixture_of_experts.h"
#include "lockstep/strategies/parallel/pipeline_stages.h"

namespace lockstep {

class CutVocabulary;
class GptBlockImpl;
class LayerWeightsImpl;
class ParallelAxis;
class ReplicaAxis;
struct GptPass;

/// The losses that a Gpt is trained with.
struct GptLosses {
  torch::Tensor losses;  ///< of each token, [B, T]: see GptImpl::losses()
  /// Of each sequence, [B], summed over the layers: see MixtureOfExperts. Undefined without experts.
  torch::Tensor balance_losses;
  torch::Tensor z_losses;
};

/// The axes of the mesh along which a Gpt is cut.
struct GptAxes {
  /// A model axis, such as "tensor": each of its ranks has a part of the layers. Null: none.
  const ReplicaAxis* parts = nullptr;
  /// A context axis, such as "context": each of its ranks has some tokens of each sequence. Null: none.
  const ReplicaAxis* tokens = nullptr;
  ContextMethod context_method = ContextMethod::kRing;  ///< attention between the tokens of all ranks
  /// An axis that cuts the batch, such as "expert": its ranks share the experts of each layer (see
  /// MixtureOfExperts). Null: each rank has all of them.
  const ReplicaAxis* experts = nullptr;
  /// A model axis, such as "pipeline": each of its ranks has some of the blocks. Null: none.
  const ReplicaAxis* stages = nullptr;
  /// Used with `stages`. Its blocks are the embeddings, each block, and the head. Without costs and cuts,
  /// stages have about as many operations (see gpt_block_flops()).
  PipelineOptions pipeline{};
};

/// How a Gpt with an axis of stages goes forward and backward.
struct GptBackward {
  /// Factors of the losses of the experts' routers, which are added to those that are trained with.
  double balance_loss = 0;
  double z_loss = 0;
  at::ScalarType autocast = torch::kFloat;  ///< See AutocastGuard.
  GradScaler* scaler = nullptr;             ///< Scales the losses. Null: they are not scaled.
};

/// Calls a block, which maps [B, T, width] to the same shape, on its input, such as by Lockstep's
/// recompute().
using GptBlockRunner = std::function<torch::Tensor(const PartFunction& block, const torch::Tensor& x)>;

/// A decoder-only transformer that predicts the next token: GPT-2 (Radford et al., "Language Models are
/// Unsupervised Multitask Learners", 2019), Llama (Touvron et al., "LLaMA: Open and Efficient Foundation
/// Language Models", 2023), and what lies between by its options. Computes what Hugging Face's
/// GPT2LMHeadModel and LlamaForCausalLM do, within rounding; gpt_weights.h reads and writes their weights.
///
/// Weights start as GPT-2's: normal with a standard deviation of 0.02, and 0.02 / sqrt(2 * num_layers) for
/// layers whose results are added to the residual stream; biases are 0.
///
/// Attention is LibTorch's fused one. If attention_dropout is above 0 in training, it is the unfused one,
/// which draws from the replica's random stream on GPUs, too.
///
/// Trains on shards of any size, including 0.
///
/// Example:
///
///     Gpt model(GptOptions{.vocabulary_size = 1000, .num_layers = 2, .num_heads = 4, .width = 64});
///     auto logits = model(torch::randint(1000, {8, 128}, torch::kLong));  // [8, 128, 1000]
class GptImpl : public torch::nn::Cloneable<GptImpl>, public ReplicaBound {
 public:
  /// Throws std::invalid_argument naming an option that is out of range. `wrap` gets the token embeddings
  /// (`tokens`), learned `positions`, each block (`blocks.0` ...), the last `norm` and a `head` of its own.
  /// Wrapped parts compute the same values, with the same initial ones. Clones call it again.
  explicit GptImpl(const GptOptions& options = {}, PartWrapper wrap = {});
  /// Makes this rank's part of a model that the ranks along an axis of the mesh, such as "tensor", compute
  /// together: some of the heads, of the hidden features and of the vocabulary. Names, shapes in checkpoints
  /// and initial values are those of the whole model. Inputs and results are the same on all ranks, and calls
  /// are collectives. Call it in a scope's factory. It cannot be cloned.
  ///
  /// Throws InvalidArgument with sizes that would do if the ranks do not divide a size (see
  /// uncut_gpt_size()), and for an axis that cuts the batch.
  ///
  ///     auto model = strategy.scope([&](ReplicaContext& replica) {  // of a mesh data=2,tensor=2
  ///       return Gpt(options, replica.axis("tensor"));
  ///     });
  ///
  /// `wrap` gets the rank's part of each part of the model, so that a model can be cut along a model axis and
  /// consist of sharded units along another one.
  GptImpl(const GptOptions& options, const ReplicaAxis& axis, GptCutOptions cut = {}, PartWrapper wrap = {});
  /// The same along any of the axes. Along a context axis, each rank has all weights. It gets the whole
  /// sequences, the same on all ranks of a replica, computes with its own tokens of them, and returns the
  /// features, logits and losses of these: token_order() says which. Sequences may have any length.
  /// next_logits() computes with whole sequences on each rank.
  ///
  /// Along an axis of stages, each rank has the weights of its blocks alone, and forward_backward() trains.
  /// Calls without gradients return the same on all ranks.
  ///
  /// Along an axis of experts, each rank has an equal share of each layer's experts, and calls are
  /// collectives of all replicas along it.
  ///
  /// Throws InvalidArgument for a tokens axis that is no context axis, for dropout along one, by
  /// kAllToAll for heads that its ranks do not divide, and as MixtureOfExperts and PipelineStages do.
  ///
  ///     return Gpt(options, GptAxes{.tokens = &replica.axis("context")});  // of a mesh data=2,context=2
  GptImpl(const GptOptions& options, const GptAxes& axes, GptCutOptions cut = {}, PartWrapper wrap = {});

  void reset() override;

  /// Maps tokens [B, T], int64, to the logits of the token after each of them, [B, T, vocabulary_size]. A
  /// token's logits depend on that token and those before it. Throws std::invalid_argument for another shape
  /// or dtype, and if T is above max_length.
  torch::Tensor forward(const torch::Tensor& tokens);

  /// Returns the vectors [B, T, width] that forward() turns into logits, for losses that need not hold all
  /// logits at once.
  torch::Tensor features(const torch::Tensor& tokens) const;
  /// Returns the logits of features [..., width].
  torch::Tensor logits(const torch::Tensor& features) const;
  /// Maps tokens [B, T] and the tokens after each of them, [B, T], to the cross entropy of each, [B, T], in
  /// nats. If the model is cut along an axis, no rank has the logits of all tokens. Along a context axis,
  /// returns those of this rank's tokens, [B, tokens of this rank]. Throws as forward(), and for targets of
  /// another shape.
  torch::Tensor losses(const torch::Tensor& tokens, const torch::Tensor& targets) const;
  /// Trains a model with an axis of stages: goes forward and backward through the mean of the cross entropies
  /// of each sequence's tokens, and returns these means, [B], without gradients. Along a context axis, they
  /// are the parts of this rank's tokens, which sum_over_contexts() adds up. The losses of the experts'
  /// routers, times the factors in `how`, are in the gradients only. See PipelineStages::forward_backward().
  /// Throws InvalidArgument without stages, and as losses() does.
  torch::Tensor forward_backward(ReplicaContext& replica, const torch::Tensor& tokens,
                                 const torch::Tensor& targets, const GptBackward& how = {});
  /// The same as losses(), and the losses of its experts' routers.
  GptLosses losses_with_routing(const torch::Tensor& tokens, const torch::Tensor& targets) const;

  /// Returns the routing statistics of this rank in each layer, since they were last reset, which `reset`
  /// does now. Layers of other ranks' stages have counted nothing here: sums along the axis of stages are
  /// those of all layers. Empty without experts.
  std::vector<RoutingStatistics> routing_statistics(bool reset = false) const;

  /// Reads the tokens [B, T] that follow those in the cache, and adds them to it. Returns the logits of the
  /// token after the last one, [B, vocabulary_size]. Computes as in evaluation, without dropout and
  /// gradients. Threads may call it at the same time, each with its own cache. Throws std::invalid_argument
  /// if the tokens do not fit.
  torch::Tensor next_logits(const torch::Tensor& tokens, GptCache& cache) const;

  /// Returns the tokens that this rank has of sequences of `length` tokens: all of them, unless the model has
  /// a context axis.
  ContextOrder token_order(int64_t length) const;

  /// Has forward() and features() call each block by `runner`, or directly if it is empty. next_logits()
  /// always calls them directly. Clones take it over. To keep only the blocks' inputs for backward:
  ///
  ///     model->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
  void set_block_runner(GptBlockRunner runner) { block_runner_ = std::move(runner); }

  /// Returns the blocks of which forward() consists: `tokens`, `blocks.0` ... and `head`, which maps to the
  /// logits. Stages are cut between them. They refer to the model.
  std::vector<PipelineBlock> blocks();
  /// Returns the stages that the ranks along an axis have; null without one.
  PipelineStages* stages() { return stages_.get(); }

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  /// Returns the options with values in place of zeros; see complete_gpt_options().
  const GptOptions& options() const { return options_; }

 private:
  template <typename Impl>
  struct Part {
    std::shared_ptr<Impl> module;  ///< null: the model has no such part
    WrappedPart wrapped;

    torch::Tensor call(const PartFunction& function, const torch::Tensor& x) const {
      return wrapped.call ? wrapped.call(function, x) : function(x);
    }
  };
  using Weights = Part<LayerWeightsImpl>;

  void initialize(const ModelPart& part) const;
  void free_unless_own(torch::nn::Module& module, const std::vector<size_t>& blocks) const;
  template <typename Impl>
  Part<Impl> wrap_part(const std::string& name, std::shared_ptr<Impl> module) const;
  std::shared_ptr<LayerWeightsImpl> initialized_table(const std::string& name, int64_t rows) const;
  Weights make_table(const std::string& name, int64_t rows);
  void make_tokens();
  void make_block(size_t layer);
  void make_head();
  torch::Tensor embed(const Weights& table, const torch::Tensor& indices) const;
  torch::Tensor embed_tokens(const torch::Tensor& tokens) const;
  torch::Tensor embed_sequence(const torch::Tensor& tokens, GptPass& pass) const;
  torch::Tensor losses_of(const torch::Tensor& tokens, const torch::Tensor& targets,
                          GptLosses* routing) const;
  torch::Tensor own_features(const torch::Tensor& tokens, GptLosses* routing = nullptr) const;
  void check_shards(int64_t length) const;
  torch::Tensor last_norm(const torch::Tensor& x, const ParallelAxis* shards) const;
  std::shared_ptr<GptBlockImpl> block(size_t layer) const;
  torch::Tensor losses_from(const torch::Tensor& x, const torch::Tensor& targets) const;
  torch::Tensor run_block(size_t layer, const torch::Tensor& x, const GptPass& pass) const;
  void set_rotary(GptPass& pass, int64_t length, torch::Device device) const;
  void moved();
  std::vector<PipelineBlock> stage_blocks();
  void begin_blocks(const torch::Tensor& tokens) const;
  PipelineStages& stages_for(const torch::Tensor& tokens) const;
  GptPass pass_in_stage(torch::Device device) const;
  torch::Tensor embed_in_stage(const torch::Tensor& tokens) const;
  torch::Tensor block_in_stage(size_t layer, const torch::Tensor& x) const;
  torch::Tensor head_in_stage(const torch::Tensor& x) const;
  torch::Tensor features_of(const torch::Tensor& result) const;
  torch::Tensor trained_losses_of(const torch::Tensor& result, const torch::Tensor& targets,
                                  const GptBackward& how) const;
  torch::Tensor gathered(const torch::Tensor& features) const;
  void check_targets(const torch::Tensor& tokens, const torch::Tensor& targets) const;
  torch::Tensor next_logits_of_stages(const torch::Tensor& tokens, GptCache& cache) const;
  torch::Tensor run_blocks(torch::Tensor x, const GptPass& pass) const;
  GptPass cached_pass(GptCache& cache, int64_t num_tokens, torch::Tensor& positions) const;

  GptOptions options_;
  PartWrapper wrap_;
  const ReplicaAxis* axis_ = nullptr;         ///< along which the parts are cut, while they are made
  const ReplicaAxis* expert_axis_ = nullptr;  ///< along which experts are shared, while they are made
  std::vector<bool>
      own_blocks_;  ///< while they are made: those of this rank's stages; empty: all are its own
  GptBlockRunner block_runner_;
  Weights tokens_;
  Weights positions_;  ///< none for rotary positions
  torch::nn::ModuleList blocks_;
  std::vector<Part<GptBlockImpl>> block_parts_;
  Weights norm_;
  Weights head_;                               ///< none if tied
  std::shared_ptr<CutVocabulary> vocabulary_;  ///< in place of the tokens and the head of a cut model
  std::shared_ptr<ContextParallelAttentionImpl> context_;  ///< null: each rank has whole sequences
  bool has_shards_ = false;                 ///< whether a pass divides sequences among the ranks
  std::shared_ptr<PipelineStages> stages_;  ///< null: each rank has all blocks
  mutable int64_t length_in_stages_ = 0;    ///< of the sequences that go through the stages now
};

class Gpt : public torch::nn::ModuleHolder<GptImpl> {
 public:
  using Impl = GptImpl;
  using torch::nn::ModuleHolder<GptImpl>::ModuleHolder;

  Gpt() = default;
  explicit Gpt(const GptOptions& options, PartWrapper wrap = {});
  Gpt(const GptOptions& options, const ReplicaAxis& axis, GptCutOptions cut = {}, PartWrapper wrap = {});
  Gpt(const GptOptions& options, const GptAxes& axes, GptCutOptions cut = {}, PartWrapper wrap = {});
};

}  // namespace lockstep
