#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/models/gpt/gpt_cache.h"
#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

class LayerWeightsImpl;
struct GptPass;

/// A layer of a Gpt with what it needs besides its input: maps [B, T, width] to the same shape. A copy stays
/// valid as long as you like.
using GptBlockFunction = std::function<torch::Tensor(const torch::Tensor&)>;
/// Calls a block on its input, such as by Lockstep's recompute().
using GptBlockRunner = std::function<torch::Tensor(const GptBlockFunction& block, const torch::Tensor& x)>;

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
class GptImpl : public torch::nn::Cloneable<GptImpl> {
 public:
  /// Throws std::invalid_argument naming an option that is out of range.
  explicit GptImpl(const GptOptions& options = {});

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

  /// Reads the tokens [B, T] that follow those in the cache, and adds them to it. Returns the logits of the
  /// token after the last one, [B, vocabulary_size]. Computes as in evaluation, without dropout and
  /// gradients. Threads may call it at the same time, each with its own cache. Throws std::invalid_argument
  /// if the tokens do not fit.
  torch::Tensor next_logits(const torch::Tensor& tokens, GptCache& cache) const;

  /// Has forward() and features() call each block by `runner`, or directly if it is empty. next_logits()
  /// always calls them directly. Clones take it over. To keep only the blocks' inputs for backward:
  ///
  ///     model->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
  void set_block_runner(GptBlockRunner runner) { block_runner_ = std::move(runner); }

  /// Returns the options with values in place of zeros; see complete_gpt_options().
  const GptOptions& options() const { return options_; }

 private:
  void initialize();
  torch::Tensor run_blocks(torch::Tensor x, const GptPass& pass) const;
  GptPass cached_pass(GptCache& cache, int64_t num_tokens, torch::Tensor& positions) const;

  GptOptions options_;
  GptBlockRunner block_runner_;
  std::shared_ptr<LayerWeightsImpl> tokens_;
  std::shared_ptr<LayerWeightsImpl> positions_;  ///< null for rotary positions
  torch::nn::ModuleList blocks_;
  std::shared_ptr<LayerWeightsImpl> norm_;
  std::shared_ptr<LayerWeightsImpl> head_;  ///< null if tied
};

class Gpt : public torch::nn::ModuleHolder<GptImpl> {
 public:
  using Impl = GptImpl;
  using torch::nn::ModuleHolder<GptImpl>::ModuleHolder;

  Gpt() = default;
  explicit Gpt(const GptOptions& options);
};

}  // namespace lockstep
