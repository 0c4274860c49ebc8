#include "lockstep/models/gpt/gpt.h"

#include <c10/util/StringUtil.h>
#include <torch/nn/init.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/models/gpt/internal/gpt_block.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/models/gpt/internal/rotary_positions.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;

std::shared_ptr<LayerWeightsImpl> make_table(int64_t rows, int64_t width) {
  return std::make_shared<LayerWeightsImpl>(LayerWeightsOptions{.shape = {rows, width}});
}

void check_tokens(const torch::Tensor& tokens, int64_t max_length) {
  if (tokens.scalar_type() != torch::kLong) {
    throw std::invalid_argument(
        c10::str("[Gpt] expected tokens of dtype Long, but got ", c10::toString(tokens.scalar_type())));
  }
  if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > max_length) {
    throw std::invalid_argument(c10::str("[Gpt] expected tokens of shape [B, T] with T from 1 to ",
                                         max_length, ", but got ", tokens.sizes()));
  }
}

/// Returns which keys each of `num_tokens` new tokens sees after `length` others: those before it, and
/// itself, but for padding. Tokens of the padding see themselves, since a row of a softmax must not be empty.
torch::Tensor cache_mask(const torch::Tensor& padding, int64_t length, int64_t num_tokens,
                         torch::Device device) {
  const auto options = torch::dtype(torch::kLong).device(device);
  const auto keys = torch::arange(length + num_tokens, options);
  const auto queries = torch::arange(length, length + num_tokens, options).unsqueeze(1);
  auto mask = keys <= queries;
  if (!padding.defined()) return mask;
  mask = mask.logical_and(keys >= padding.view({-1, 1, 1})).logical_or(keys == queries);
  return mask.unsqueeze(1);
}

}  // namespace

GptImpl::GptImpl(const GptOptions& options) : options_(complete_gpt_options(options)) {
  reset();
}

void GptImpl::reset() {
  tokens_ = register_module("tokens", make_table(options_.vocabulary_size, options_.width));
  if (options_.positions == GptPositions::kLearned)
    positions_ = register_module("positions", make_table(options_.max_length, options_.width));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (int64_t layer = 0; layer < options_.num_layers; ++layer)
    blocks_->push_back(GptBlock(options_, static_cast<size_t>(layer)));
  norm_ = register_module("norm", make_norm(options_).ptr());
  if (!options_.has_tied_head)
    head_ = register_module("head", make_table(options_.vocabulary_size, options_.width));
  initialize();
}

void GptImpl::initialize() {
  const double added = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(options_.num_layers));
  for (auto& item : named_parameters()) {
    const std::string& name = item.key();
    if (name.ends_with("bias")) {
      torch::nn::init::zeros_(item.value());
    } else if (name.ends_with("norm.weight")) {
      torch::nn::init::ones_(item.value());
    } else {
      const bool is_added = name.ends_with("attention_output.weight") || name.ends_with("down.weight");
      torch::nn::init::normal_(item.value(), 0, is_added ? added : kInitialDeviation);
    }
  }
}

torch::Tensor GptImpl::run_blocks(torch::Tensor x, const GptPass& pass) const {
  x = torch::dropout(x, options_.embedding_dropout, pass.is_training);
  for (size_t layer = 0; layer < blocks_->size(); ++layer) {
    const auto block = blocks_->ptr<GptBlockImpl>(layer);
    if (block_runner_ && pass.cache == nullptr) {
      x = block_runner_([block, pass](const torch::Tensor& input) { return block->forward(input, pass); }, x);
    } else {
      x = block->forward(x, pass);
    }
  }
  return x;
}

torch::Tensor GptImpl::features(const torch::Tensor& tokens) const {
  check_tokens(tokens, options_.max_length);
  const int64_t length = tokens.size(1);
  GptPass pass{.is_training = is_training()};
  auto x = torch::embedding(tokens_->weight, tokens);
  if (positions_ != nullptr) {
    x = x + positions_->weight.narrow(0, 0, length);
  } else {
    pass.rotary = rotary_factors(options_, length, tokens.device());
  }
  return normalize(run_blocks(x, pass), norm_, options_);
}

torch::Tensor GptImpl::logits(const torch::Tensor& features) const {
  return torch::linear(features, (head_ != nullptr ? head_ : tokens_)->weight);
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  return logits(features(tokens));
}

GptPass GptImpl::cached_pass(GptCache& cache, int64_t num_tokens, torch::Tensor& positions) const {
  const auto device = tokens_->weight.device();
  const auto& padding = cache.options_.padding;
  if (!padding.empty() && !cache.padding_.defined())
    cache.padding_ = torch::tensor(padding, torch::kLong).to(device);
  if (positions_ == nullptr && !cache.rotary_cosines_.defined()) {
    const auto factors = rotary_factors(options_, std::min(cache.capacity(), options_.max_length), device);
    cache.rotary_cosines_ = factors.cosines;
    cache.rotary_sines_ = factors.sines;
  }
  positions =
      torch::arange(cache.length_, cache.length_ + num_tokens, torch::dtype(torch::kLong).device(device));
  if (cache.padding_.defined()) positions = (positions - cache.padding_.unsqueeze(1)).clamp_min(0);

  // Without padding, the first tokens are causal, and a single one sees all keys: neither needs a mask.
  const bool needs_mask = cache.padding_.defined() || (cache.length_ > 0 && num_tokens > 1);
  GptPass pass{.is_causal = !needs_mask && num_tokens > 1, .cache = &cache};
  if (needs_mask) pass.mask = cache_mask(cache.padding_, cache.length_, num_tokens, device);
  if (positions_ == nullptr) {
    pass.rotary.cosines = torch::embedding(cache.rotary_cosines_, positions);
    pass.rotary.sines = torch::embedding(cache.rotary_sines_, positions);
  }
  return pass;
}

torch::Tensor GptImpl::next_logits(const torch::Tensor& tokens, GptCache& cache) const {
  cache.check_room(tokens);
  check_tokens(tokens, options_.max_length + tokens.size(1));
  const torch::NoGradGuard no_grad;
  torch::Tensor positions;
  const GptPass pass = cached_pass(cache, tokens.size(1), positions);
  auto x = torch::embedding(tokens_->weight, tokens);
  if (positions_ != nullptr) x = x + torch::embedding(positions_->weight, positions);
  x = run_blocks(x, pass).select(1, -1);
  cache.length_ += tokens.size(1);
  return logits(normalize(x, norm_, options_));
}

Gpt::Gpt(const GptOptions& options) : ModuleHolder(std::make_shared<GptImpl>(options)) {}

}  // namespace lockstep
