// A Gpt of which the ranks along an axis have some blocks each.
#include <c10/util/StringUtil.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/internal/cut_vocabulary.h"
#include "lockstep/models/gpt/internal/gpt_block.h"
#include "lockstep/models/gpt/internal/layer_weights.h"

namespace lockstep {

/// The same by the ranks of all stages, each with the keys and values of its own layers.
torch::Tensor GptImpl::next_logits_of_stages(const torch::Tensor& tokens, GptCache& cache) const {
  torch::Tensor positions;
  const GptPass pass = cached_pass(cache, tokens.size(1), positions);
  std::vector<PartFunction> functions{[&](const torch::Tensor& own) {
    const auto x = embed_tokens(own);
    return positions_.module != nullptr ? x + embed(positions_, positions) : x;
  }};
  for (size_t layer = 0; layer < block_parts_.size(); ++layer)
    functions.emplace_back([&, layer](const torch::Tensor& x) { return run_block(layer, x, pass); });
  functions.emplace_back([&](const torch::Tensor& x) { return logits(last_norm(x.select(1, -1), nullptr)); });
  auto result = stages_->forward_by(functions, tokens);
  cache.length_ += tokens.size(1);
  return result;
}

/// Stages with experts always hand the routers' losses on, so that what they return has one shape.
GptPass GptImpl::pass_in_stage(torch::Device device) const {
  GptPass pass{.is_training = is_training(),
               .collects_routing = options_.num_experts > 0,
               .shards = has_shards_ ? &vocabulary_->axis() : nullptr};
  if (context_ != nullptr) {
    pass.context = context_;
    pass.order = token_order(length_in_stages_);
  }
  set_rotary(pass, length_in_stages_, device);
  return pass;
}

torch::Tensor GptImpl::embed_in_stage(const torch::Tensor& tokens) const {
  GptPass pass = pass_in_stage(tokens.device());
  auto x = embed_sequence(pass.order ? pass.order->own_part(tokens, 1) : tokens, pass);
  x = dropout_in(pass, x, options_.embedding_dropout);
  return pass.collects_routing ? with_routing_columns(x) : x;
}

torch::Tensor GptImpl::block_in_stage(size_t layer, const torch::Tensor& x) const {
  return run_block(layer, x, pass_in_stage(x.device()));
}

torch::Tensor GptImpl::head_in_stage(const torch::Tensor& x) const {
  const ParallelAxis* shards = has_shards_ ? &vocabulary_->axis() : nullptr;
  if (options_.num_experts == 0) return last_norm(x, shards);
  const auto parts = split_routing(x);
  return torch::cat({last_norm(parts.features, shards), parts.routing}, -1);
}

/// Returns what the last stage's result has besides the routers' losses.
torch::Tensor GptImpl::features_of(const torch::Tensor& result) const {
  return options_.num_experts == 0 ? result : split_routing(result).features;
}

/// Returns the mean losses of sequences, of this rank's tokens, with the gradients of the routers' losses.
torch::Tensor GptImpl::trained_losses_of(const torch::Tensor& result, const torch::Tensor& targets,
                                         const GptBackward& how) const {
  const auto losses = losses_from(features_of(result), targets);
  const auto means = losses.size(1) == length_in_stages_
                         ? losses.mean(1)
                         : losses.sum(1) / static_cast<double>(length_in_stages_);
  if (options_.num_experts == 0) return means;
  const auto of_routers = routing_losses(split_routing(result).routing).unbind(-1);
  const auto added = how.balance_loss * of_routers[0] + how.z_loss * of_routers[1];
  return means + (added - added.detach());
}

std::vector<PipelineBlock> GptImpl::blocks() {
  auto blocks = stage_blocks();
  blocks.front().forward = [this](const auto& tokens) {
    begin_blocks(tokens);
    return embed_in_stage(tokens);
  };
  blocks.back().forward = [this](const auto& x) { return logits(gathered(features_of(head_in_stage(x)))); };
  return blocks;
}

/// The blocks of stages. The last one's result lacks the product with the head, which the losses may take
/// without having all logits at once.
std::vector<PipelineBlock> GptImpl::stage_blocks() {
  std::vector<PipelineBlock> blocks;
  const auto table = vocabulary_ != nullptr ? vocabulary_->tokens() : tokens_.wrapped.module;
  PipelineBlock first{
      .name = "tokens", .modules = {table}, .forward = [this](const auto& x) { return embed_in_stage(x); }};
  if (positions_.module != nullptr) first.modules.push_back(positions_.wrapped.module);
  blocks.push_back(std::move(first));
  for (size_t layer = 0; layer < block_parts_.size(); ++layer) {
    blocks.push_back({.name = c10::str("blocks.", layer),
                      .modules = {block_parts_[layer].wrapped.module},
                      .forward = [this, layer](const auto& x) { return block_in_stage(layer, x); }});
  }
  const auto own_head = vocabulary_ != nullptr ? vocabulary_->head() : head_.wrapped.module;
  blocks.push_back({.name = "head",
                    .modules = {norm_.wrapped.module, options_.has_tied_head ? table : own_head},
                    .forward = [this](const auto& x) { return head_in_stage(x); }});
  return blocks;
}

void GptImpl::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  if (stages_ != nullptr) stages_->bind(std::move(replica));
}

void GptImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  moved();
}

void GptImpl::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  moved();
}

void GptImpl::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  moved();
}

void GptImpl::moved() {
  if (stages_ != nullptr) stages_->moved();
}

}  // namespace lockstep
