#include "lockstep/models/gpt/gpt.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/models/gpt/internal/cut_vocabulary.h"
#include "lockstep/models/gpt/internal/gpt_block.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/models/gpt/internal/rotary_positions.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

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

torch::Tensor GptImpl::embed(const Weights& table, const torch::Tensor& indices) const {
  return table.call(
      [module = table.module](const torch::Tensor& rows) { return torch::embedding(module->weight, rows); },
      indices);
}

torch::Tensor GptImpl::embed_tokens(const torch::Tensor& tokens) const {
  return vocabulary_ != nullptr ? vocabulary_->embed(tokens) : embed(tokens_, tokens);
}

torch::Tensor GptImpl::last_norm(const torch::Tensor& x, const ParallelAxis* shards) const {
  return norm_.call([module = norm_.module, options = options_, shards](
                        const torch::Tensor& input) { return normalize(input, module, options, shards); },
                    x);
}

/// Cloning a ModuleList makes other elements than reset() did.
std::shared_ptr<GptBlockImpl> GptImpl::block(size_t layer) const {
  auto listed = std::dynamic_pointer_cast<GptBlockImpl>(blocks_->ptr(layer));
  return listed != nullptr ? listed : block_parts_[layer].module;
}

torch::Tensor GptImpl::run_block(size_t layer, const torch::Tensor& x, const GptPass& pass) const {
  const PartFunction compute = [block = block(layer), pass](const torch::Tensor& input) {
    return block->forward(input, pass);
  };
  const PartFunction run = [part = block_parts_[layer], compute](const torch::Tensor& input) {
    return part.call(compute, input);
  };
  return block_runner_ && pass.cache == nullptr ? block_runner_(run, x) : run(x);
}

torch::Tensor GptImpl::run_blocks(torch::Tensor x, const GptPass& pass) const {
  x = dropout_in(pass, x, options_.embedding_dropout);
  if (pass.collects_routing) x = with_routing_columns(x);
  for (size_t layer = 0; layer < block_parts_.size(); ++layer) x = run_block(layer, x, pass);
  return x;
}

void GptImpl::set_rotary(GptPass& pass, int64_t length, torch::Device device) const {
  if (positions_.module != nullptr) return;
  pass.rotary = rotary_factors(options_, pass.order ? pass.order->length() : length, device);
  if (!pass.order) return;
  const auto places = pass.order->positions().to(device);
  pass.rotary.cosines = pass.rotary.cosines.index_select(0, places);
  pass.rotary.sines = pass.rotary.sines.index_select(0, places);
}

torch::Tensor GptImpl::embed_sequence(const torch::Tensor& tokens, GptPass& pass) const {
  const int64_t length = tokens.size(1);
  const auto x = pass.shards != nullptr ? vocabulary_->embed_shards(tokens) : embed_tokens(tokens);
  if (positions_.module == nullptr) {
    set_rotary(pass, length, tokens.device());
    return x;
  }
  torch::Tensor places;  // of this rank's tokens; undefined: the first `length`
  if (pass.order) places = pass.order->positions().to(tokens.device());
  return positions_.call(
      [table = positions_.module, length, places, shards = pass.shards](const torch::Tensor& embedded) {
        const auto rows =
            places.defined() ? torch::embedding(table->weight, places) : table->weight.narrow(0, 0, length);
        return embedded + (shards != nullptr ? shards->own_part(rows, 0) : rows);
      },
      x);
}

ContextOrder GptImpl::token_order(int64_t length) const {
  return context_ != nullptr ? context_->order(length)
                             : ContextOrder({.length = length, .order = TokenOrder::kPlain});
}

/// Throws InvalidArgument on all ranks if some cannot divide their tokens of such sequences.
void GptImpl::check_shards(int64_t length) const {
  const int64_t parts = vocabulary_->axis().size();
  const ContextOrder order = token_order(length);
  for (int rank = 0; rank < order.ranks(); ++rank) {
    if (order.tokens_of(rank) % parts == 0) continue;
    const int64_t unit = parts * order.ranks();
    throw InvalidArgument(c10::str(
        "[Gpt] expected a length that the ", parts, " ranks along the axis ", vocabulary_->axis().name(),
        order.ranks() == 1
            ? ""
            : c10::str(" and the ", order.ranks(), " along ", context_->parallel_axis().name()),
        " divide, but got sequences of ", length,
        " tokens: ", length < unit ? "" : c10::str(length / unit * unit, " or "), (length / unit + 1) * unit,
        " would do"));
  }
}

/// Returns the features of this rank's tokens, or of its shard of them if the model divides them.
torch::Tensor GptImpl::own_features(const torch::Tensor& tokens, GptLosses* routing) const {
  check_tokens(tokens, options_.max_length);
  if (has_shards_) check_shards(tokens.size(1));
  GptPass pass{.is_training = is_training(),
               .collects_routing = routing != nullptr && options_.num_experts > 0,
               .shards = has_shards_ ? &vocabulary_->axis() : nullptr};
  if (context_ != nullptr) {
    pass.context = context_;
    pass.order = token_order(tokens.size(1));
  }
  const auto x = embed_sequence(pass.order ? pass.order->own_part(tokens, 1) : tokens, pass);
  auto result = run_blocks(x, pass);
  if (pass.collects_routing) {
    auto parts = split_routing(result);
    result = std::move(parts.features);
    const auto losses = routing_losses(parts.routing).unbind(-1);
    routing->balance_losses = losses[0];
    routing->z_losses = losses[1];
  }
  return last_norm(result, pass.shards);
}

/// Checks the tokens that are to go through the blocks, which learn how long the sequences are.
void GptImpl::begin_blocks(const torch::Tensor& tokens) const {
  check_tokens(tokens, options_.max_length);
  if (has_shards_) check_shards(tokens.size(1));
  length_in_stages_ = tokens.size(1);
}

PipelineStages& GptImpl::stages_for(const torch::Tensor& tokens) const {
  begin_blocks(tokens);
  return *stages_;
}

torch::Tensor GptImpl::gathered(const torch::Tensor& features) const {
  return has_shards_ ? vocabulary_->axis().gather_parts(features, 1) : features;
}

torch::Tensor GptImpl::features(const torch::Tensor& tokens) const {
  if (stages_ == nullptr) return gathered(own_features(tokens));
  return stages_for(tokens).forward(tokens, {},
                                    [this](const auto& x, const auto&) { return gathered(features_of(x)); });
}

torch::Tensor GptImpl::logits(const torch::Tensor& features) const {
  if (vocabulary_ != nullptr) return vocabulary_->logits(features);
  const Weights& head = options_.has_tied_head ? tokens_ : head_;
  return head.call(
      [module = head.module](const torch::Tensor& x) { return torch::linear(x, module->weight); }, features);
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  if (stages_ == nullptr) return logits(features(tokens));
  return stages_for(tokens).forward(
      tokens, {}, [this](const auto& x, const auto&) { return logits(gathered(features_of(x))); });
}

torch::Tensor GptImpl::losses(const torch::Tensor& tokens, const torch::Tensor& targets) const {
  return losses_of(tokens, targets, nullptr);
}

GptLosses GptImpl::losses_with_routing(const torch::Tensor& tokens, const torch::Tensor& targets) const {
  GptLosses all;
  all.losses = losses_of(tokens, targets, &all);
  return all;
}

std::vector<RoutingStatistics> GptImpl::routing_statistics(bool reset) const {
  std::vector<RoutingStatistics> statistics;
  for (size_t layer = 0; layer < block_parts_.size(); ++layer) {
    auto* experts = block(layer)->experts();
    if (experts == nullptr) continue;
    statistics.push_back(experts->statistics());
    if (reset) experts->reset_statistics();
  }
  return statistics;
}

torch::Tensor GptImpl::losses_of(const torch::Tensor& tokens, const torch::Tensor& targets,
                                 GptLosses* routing) const {
  check_targets(tokens, targets);
  if (stages_ == nullptr) {
    const auto x = own_features(tokens, routing);
    return losses_from(x, token_order(targets.size(1)).own_part(targets, 1));
  }
  if (is_training() && at::GradMode::is_enabled())
    throw InvalidArgument("[Gpt] expected forward_backward() to train a model with an axis of stages");
  PipelineStages& stages = stages_for(tokens);
  const auto own_targets = token_order(targets.size(1)).own_part(targets, 1);
  const auto finish = [&](const torch::Tensor& result, const torch::Tensor& of_rows) {
    const auto losses = losses_from(features_of(result), of_rows);
    if (routing == nullptr || options_.num_experts == 0) return losses;
    const auto columns = routing_losses(split_routing(result).routing).unsqueeze(1);
    return torch::cat({losses.unsqueeze(-1), columns.expand({-1, losses.size(1), -1})}, -1);
  };
  const auto results = stages.forward(tokens, own_targets, finish);
  if (results.dim() == 2) return results;
  routing->balance_losses = routing_losses(results.select(-1, 1));
  routing->z_losses = routing_losses(results.select(-1, 2));
  return results.select(-1, 0);
}

void GptImpl::check_targets(const torch::Tensor& tokens, const torch::Tensor& targets) const {
  if (targets.sizes() == tokens.sizes()) return;
  throw std::invalid_argument(c10::str("[Gpt] expected targets of the tokens' shape ", tokens.sizes(),
                                       ", but got ", targets.sizes()));
}

/// Returns the losses of this rank's tokens, from their features or those of its shard of them.
torch::Tensor GptImpl::losses_from(const torch::Tensor& x, const torch::Tensor& targets) const {
  if (vocabulary_ != nullptr) return vocabulary_->losses(x, targets, has_shards_);
  const auto losses =
      torch::cross_entropy_loss(logits(x).flatten(0, 1), targets.flatten(), {}, at::Reduction::None);
  return losses.view(targets.sizes());
}

GptPass GptImpl::cached_pass(GptCache& cache, int64_t num_tokens, torch::Tensor& positions) const {
  const auto device = norm_.module->weight.device();
  const auto& padding = cache.options_.padding;
  if (!padding.empty() && !cache.padding_.defined())
    cache.padding_ = torch::tensor(padding, torch::kLong).to(device);
  if (positions_.module == nullptr && !cache.rotary_cosines_.defined()) {
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
  if (positions_.module == nullptr) {
    pass.rotary.cosines = torch::embedding(cache.rotary_cosines_, positions);
    pass.rotary.sines = torch::embedding(cache.rotary_sines_, positions);
  }
  return pass;
}

torch::Tensor GptImpl::next_logits(const torch::Tensor& tokens, GptCache& cache) const {
  cache.check_room(tokens);
  check_tokens(tokens, options_.max_length + tokens.size(1));
  const torch::NoGradGuard no_grad;
  if (stages_ != nullptr) return next_logits_of_stages(tokens, cache);
  torch::Tensor positions;
  const GptPass pass = cached_pass(cache, tokens.size(1), positions);
  auto x = embed_tokens(tokens);
  if (positions_.module != nullptr) x = x + embed(positions_, positions);
  x = run_blocks(x, pass).select(1, -1);
  cache.length_ += tokens.size(1);
  return logits(last_norm(x, nullptr));
}

torch::Tensor GptImpl::forward_backward(ReplicaContext& replica, const torch::Tensor& tokens,
                                        const torch::Tensor& targets, const GptBackward& how) {
  if (stages_ == nullptr)
    throw InvalidArgument("[Gpt] expected a model with an axis of stages: others are trained by losses()");
  check_targets(tokens, targets);
  const auto losses = [this, &how](const torch::Tensor& result, const torch::Tensor& own) {
    return trained_losses_of(result, own, how);
  };
  PipelineStages& stages = stages_for(tokens);
  const auto own_targets = token_order(targets.size(1)).own_part(targets, 1);
  const PipelinePass pass{
      .losses = losses, .autocast = how.autocast, .scaler = how.scaler, .returns_outputs = false};
  return stages.forward_backward(replica, tokens, own_targets, pass).losses;
}

}  // namespace lockstep
