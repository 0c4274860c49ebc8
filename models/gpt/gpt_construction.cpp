// Makes a Gpt of its parts.
#include <c10/util/StringUtil.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_cut.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/internal/cut_vocabulary.h"
#include "lockstep/models/gpt/internal/gpt_block.h"
#include "lockstep/models/gpt/internal/layer_weights.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/tensor_memory.h"
#include "lockstep/runtime/replicas/replica_axis.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;

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

/// The number of blocks() of a model.
size_t num_gpt_blocks(const GptOptions& options) {
  return static_cast<size_t>(options.num_layers) + 2;
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
  PipelineOptions pipeline = axes.pipeline;
  if (pipeline.costs.empty() && pipeline.cuts.empty())
    pipeline.costs = gpt_block_flops(options_, options_.max_length);
  if (axes.stages != nullptr) own_blocks_ = blocks_of_rank(*axes.stages, pipeline, num_gpt_blocks(options_));
  reset();
  axis_ = nullptr;
  expert_axis_ = nullptr;
  own_blocks_.clear();
  has_shards_ = cut.shard_sequence && vocabulary_ != nullptr;
  if (axes.stages != nullptr)
    stages_ = std::make_shared<PipelineStages>(*axes.stages, stage_blocks(), std::move(pipeline));
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

/// Frees the memory of a part that only blocks of other ranks' stages use, so that a rank never has the whole
/// model. Parts keep their sizes until the stages are cut. Wrapped ones may have other tensors already.
void GptImpl::free_unless_own(torch::nn::Module& module, const std::vector<size_t>& blocks) const {
  const auto is_own = [&](size_t block) { return own_blocks_[block]; };
  if (own_blocks_.empty() || wrap_ || std::any_of(blocks.begin(), blocks.end(), is_own)) return;
  for (const auto& parameter : module.parameters()) release_memory(parameter);
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
  block_parts_.push_back(wrap_part(name, block));
  free_unless_own(*block, {layer + 1});
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
  const size_t last_block = num_gpt_blocks(options_) - 1;
  make_tokens();
  if (tokens_.module != nullptr)
    free_unless_own(*tokens_.module,
                    options_.has_tied_head ? std::vector<size_t>{0, last_block} : std::vector<size_t>{0});
  if (options_.positions == GptPositions::kLearned) {
    positions_ = make_table("positions", options_.max_length);
    free_unless_own(*positions_.module, {0});
  }
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  block_parts_.clear();
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) make_block(static_cast<size_t>(layer));
  const auto norm = make_norm(options_).ptr();
  initialize({"norm", norm});
  norm_ = wrap_part("norm", norm);
  register_module("norm", norm_.wrapped.module);
  if (!options_.has_tied_head) make_head();
  if (head_.module != nullptr) free_unless_own(*head_.module, {last_block});
}

Gpt::Gpt(const GptOptions& options, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, std::move(wrap))) {}

Gpt::Gpt(const GptOptions& options, const ReplicaAxis& axis, GptCutOptions cut, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, axis, cut, std::move(wrap))) {}

Gpt::Gpt(const GptOptions& options, const GptAxes& axes, GptCutOptions cut, PartWrapper wrap)
    : ModuleHolder(std::make_shared<GptImpl>(options, axes, cut, std::move(wrap))) {}

}  // namespace lockstep
