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

#include "lockstep/models/gpt/gpt_cut.h"
#include "lockstep/models/gpt/internal/cut_vocabulary.h"
#include "lockstep/models/gpt/internal/gpt_block.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/models/gpt/internal/rotary_positions.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/replica_axis.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;

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

/// Throws InvalidArgument for dropout, of which the ranks along the axis would have to draw other numbers
/// than each other, but the same as those that share their tokens.
void refuse_dropout(const GptOptions& options, const ReplicaAxis& tokens) {
  using Named = std::pair<const char*, double>;
  for (const auto& [name, probability] : {Named{"embedding_dropout", options.embedding_dropout},
                                          Named{"attention_dropout", options.attention_dropout},
                                          Named{"residual_dropout", options.residual_dropout}}) {
    if (probability == 0) continue;
    throw InvalidArgument(c10::str("[Gpt] expected no dropout in a model of which the ranks along the axis ",
                                   tokens.name(), " have different tokens, but got ", name, " ",
                                   probability));
  }
}

/// Checks what a model along a context axis cannot do.
void check_tokens_axis(const GptOptions& options, const GptAxes& axes) {
  const ReplicaAxis& tokens = *axes.tokens;
  const ParallelAxis checked("Gpt", tokens, AxisRole::kContext);
  if (tokens.size() == 1) return;
  refuse_dropout(options, tokens);
  const int64_t parts = axes.parts != nullptr ? axes.parts->size() : 1;
  if (axes.context_method != ContextMethod::kAllToAll) return;
  checked.share_of(options.num_heads / parts, parts == 1 ? "num_heads" : "num_heads of each part");
}

/// Returns the complete options of a model that the ranks along the axis can divide.
GptOptions options_to_cut(const GptOptions& options, const GptAxes& axes) {
  if (axes.tokens != nullptr) check_tokens_axis(options, axes);
  if (axes.parts == nullptr) return complete_gpt_options(options);
  const ReplicaAxis& axis = *axes.parts;
  const ParallelAxis checked("Gpt", axis);
  if (const auto uncut = uncut_gpt_size(options, axis.size())) {
    throw InvalidArgument(c10::str("[Gpt] expected a ", uncut->option, " that the ", axis.size(),
                                   " ranks along the axis ", axis.name(), " divide, but got ", uncut->given,
                                   ": ", would_do_text(*uncut)));
  }
  return complete_gpt_options(options);
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

GptImpl::GptImpl(const GptOptions& options, PartWrapper wrap)
    : options_(complete_gpt_options(options)), wrap_(std::move(wrap)) {
  reset();
}

GptImpl::GptImpl(const GptOptions& options, const ReplicaAxis& axis, GptCutOptions cut, PartWrapper wrap)
    : GptImpl(options, GptAxes{.parts = &axis}, cut, std::move(wrap)) {}

GptImpl::GptImpl(const GptOptions& options, const GptAxes& axes, GptCutOptions cut, PartWrapper wrap)
    : options_(options_to_cut(options, axes)),
      wrap_(std::move(wrap)),
      axis_(axes.parts != nullptr && axes.parts->size() > 1 ? axes.parts : nullptr),
      expert_axis_(axes.experts) {
  reset();
  axis_ = nullptr;
  expert_axis_ = nullptr;
  has_shards_ = cut.shard_sequence && vocabulary_ != nullptr;
  if (axes.stages != nullptr) cut_into_stages(axes);
  if (axes.tokens == nullptr || axes.tokens->size() == 1) return;
  context_ = register_module(
      "context",
      std::make_shared<ContextParallelAttentionImpl>(
          *axes.tokens, ContextParallelAttentionOptions{.method = axes.context_method, .is_causal = true}));
  for (size_t layer = 0; layer < block_parts_.size() && options_.num_experts > 0; ++layer)
    block(layer)->share_sequences(*axes.tokens);
}

void GptImpl::initialize(const ModelPart& part) const {
  const double added = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(options_.num_layers));
  for (auto& item : part.module->named_parameters()) {
    const std::string name = part.name + "." + item.key();
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

template <typename Impl>
GptImpl::Part<Impl> GptImpl::wrap_part(const std::string& name, std::shared_ptr<Impl> module) const {
  const ModelPart part{name, module};
  // Before it is wrapped: units do not gather the experts of other ranks.
  if (auto* block = dynamic_cast<GptBlockImpl*>(module.get());
      block != nullptr && block->experts() != nullptr && expert_axis_ != nullptr)
    block->cut_experts(*expert_axis_);
  return {std::move(module), wrap_ ? wrap_(part) : WrappedPart{part.module}};
}

std::shared_ptr<LayerWeightsImpl> GptImpl::initialized_table(const std::string& name, int64_t rows) const {
  auto table = std::make_shared<LayerWeightsImpl>(LayerWeightsOptions{.shape = {rows, options_.width}});
  initialize({name, table});
  return table;
}

GptImpl::Weights GptImpl::make_table(const std::string& name, int64_t rows) {
  auto table = wrap_part(name, initialized_table(name, rows));
  register_module(name, table.wrapped.module);
  return table;
}

void GptImpl::make_tokens() {
  if (axis_ == nullptr) {
    tokens_ = make_table("tokens", options_.vocabulary_size);
    return;
  }
  const auto whole = initialized_table("tokens", options_.vocabulary_size);
  vocabulary_ = std::make_shared<CutVocabulary>(*axis_, whole->weight, wrap_);
  register_module("tokens", vocabulary_->tokens());
  register_module("loss", vocabulary_->loss().ptr());
}

void GptImpl::make_block(size_t layer) {
  const std::string name = c10::str("blocks.", layer);
  auto block = std::make_shared<GptBlockImpl>(options_, layer);
  initialize({name, block});
  if (axis_ != nullptr) block->cut(*axis_);
  block_parts_.push_back(wrap_part(name, std::move(block)));
  blocks_->push_back(block_parts_.back().wrapped.module);
}

void GptImpl::make_head() {
  if (axis_ == nullptr) {
    head_ = make_table("head", options_.vocabulary_size);
    return;
  }
  vocabulary_->cut_head(*axis_, initialized_table("head", options_.vocabulary_size)->weight, wrap_);
  register_module("head", vocabulary_->head());
}

void GptImpl::reset() {
  if (vocabulary_ != nullptr || context_ != nullptr || stages_ != nullptr)
    throw InvalidArgument("[Gpt] expected to clone a model that is not cut along an axis, but this one is");
  make_tokens();
  if (options_.positions == GptPositions::kLearned) positions_ = make_table("positions", options_.max_length);
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  block_parts_.clear();
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) make_block(static_cast<size_t>(layer));
  const auto norm = make_norm(options_).ptr();
  initialize({"norm", norm});
  norm_ = wrap_part("norm", norm);
  register_module("norm", norm_.wrapped.module);
  if (!options_.has_tied_head) make_head();
}

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

/// Returns the stages, which learn how long the sequences are that go through them.
PipelineStages& GptImpl::stages_for(const torch::Tensor& tokens) const {
  check_tokens(tokens, options_.max_length);
  if (has_shards_) check_shards(tokens.size(1));
  length_in_stages_ = tokens.size(1);
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

Gpt::Gpt(const GptOptions& options, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, std::move(wrap))) {}

Gpt::Gpt(const GptOptions& options, const ReplicaAxis& axis, GptCutOptions cut, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, axis, cut, std::move(wrap))) {}

Gpt::Gpt(const GptOptions& options, const GptAxes& axes, GptCutOptions cut, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, axes, cut, std::move(wrap))) {}

}  // namespace lockstep
