#include "lockstep/models/gpt/internal/gpt_block.h"

#include <ATen/ops/rms_norm.h>
#include <torch/utils.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/internal/attention.h"

namespace lockstep {
namespace {

constexpr int64_t kRoutingColumns = 2;

/// Returns the product with a layer's weights alone: several layers that are cut may share an input, which
/// to_parts() copies once.
template <typename Layer>
auto linear_by(const std::shared_ptr<Layer>& layer) {
  return [layer](const torch::Tensor& x) { return torch::linear(x, layer->weight, layer->bias); };
}

MixtureOfExpertsOptions mixture_of(const GptOptions& options) {
  MixtureOfExpertsOptions mixture{.features = options.width,
                                  .hidden_features = options.hidden_width,
                                  .num_experts = options.num_experts,
                                  .experts_per_token = options.experts_per_token,
                                  .num_shared_experts = options.num_shared_experts,
                                  .bias = options.has_mlp_bias,
                                  // The loss shows it, which callbacks watch.
                                  .refuses_not_finite = false};
  if (options.expert_capacity_factor > 0) mixture.capacity_factor = options.expert_capacity_factor;
  switch (options.activation) {
    case GptActivation::kGelu:
      mixture.activation = ExpertActivation::kGelu;
      break;
    case GptActivation::kGeluTanh:
      mixture.activation = ExpertActivation::kGeluTanh;
      break;
    case GptActivation::kSwiGlu:
      mixture.activation = ExpertActivation::kSwiGlu;
      break;
  }
  return mixture;
}

}  // namespace

LayerWeights make_norm(const GptOptions& options) {
  return LayerWeights(
      LayerWeightsOptions{.shape = {options.width}, .has_bias = options.norm == GptNorm::kLayerNorm});
}

torch::Tensor normalize(const torch::Tensor& x, const LayerWeights& norm, const GptOptions& options,
                        const ParallelAxis* shards) {
  torch::Tensor weight = norm->weight;
  torch::Tensor bias = norm->bias;
  if (shards != nullptr) {  // Gradients are those of a shard, and are to be summed: in one piece.
    const auto both = bias.defined() ? torch::stack({weight, bias}) : weight.unsqueeze(0);
    const auto shared = shards->copy_to_parts(both).unbind(0);
    weight = shared.front();
    if (bias.defined()) bias = shared.back();
  }
  if (options.norm == GptNorm::kRmsNorm)
    return at::rms_norm(x, {options.width}, weight, options.norm_epsilon);
  return torch::layer_norm(x, {options.width}, weight, bias, options.norm_epsilon);
}

torch::Tensor dropout_in(const GptPass& pass, const torch::Tensor& x, double probability) {
  if (!pass.is_training || probability == 0) return x;
  if (pass.shards == nullptr) return torch::dropout(x, probability, /*train=*/true);
  const RankRandom own = pass.shards->rank_random();
  return torch::dropout(x, probability, /*train=*/true);
}

torch::Tensor with_routing_columns(const torch::Tensor& features) {
  return torch::constant_pad_nd(features, {0, kRoutingColumns});
}

RoutedFeatures split_routing(const torch::Tensor& x) {
  auto parts = x.split_with_sizes({x.size(-1) - kRoutingColumns, kRoutingColumns}, -1);
  return {std::move(parts[0]), std::move(parts[1])};
}

torch::Tensor routing_losses(const torch::Tensor& columns) {
  return columns.sum(1) / static_cast<double>(std::max<int64_t>(1, columns.size(1)));
}

GptBlockImpl::GptBlockImpl(const GptOptions& options, size_t layer) : options_(options), layer_(layer) {
  reset();
}

void GptBlockImpl::reset() {
  const int64_t width = options_.width;
  const int64_t queries = options_.num_heads * options_.head_width;
  const int64_t keys = options_.num_key_value_heads * options_.head_width;
  attention_norm_ = register_module("attention_norm", make_norm(options_));
  qkv_ = make_linear("qkv", queries + 2 * keys, width, options_.has_attention_bias);
  attention_output_ = make_output("attention_output", queries, options_.has_attention_bias);
  mlp_norm_ = register_module("mlp_norm", make_norm(options_));
  if (options_.num_experts > 0) {
    experts_ = register_module("experts", MixtureOfExperts(mixture_of(options_)));
    return;
  }
  if (options_.activation == GptActivation::kSwiGlu)
    gate_ = make_linear("gate", options_.hidden_width, width, options_.has_mlp_bias);
  up_ = make_linear("up", options_.hidden_width, width, options_.has_mlp_bias);
  down_ = make_output("down", options_.hidden_width, options_.has_mlp_bias);
}

GptBlockImpl::Output GptBlockImpl::make_output(const std::string& name, int64_t inputs, bool has_bias) {
  return [linear = make_linear(name, options_.width, inputs, has_bias)](const torch::Tensor& x,
                                                                        const GptPass&) { return linear(x); };
}

GptBlockImpl::Linear GptBlockImpl::make_linear(const std::string& name, int64_t outputs, int64_t inputs,
                                               bool has_bias) {
  return linear_by(register_module(name, std::make_shared<LayerWeightsImpl>(LayerWeightsOptions{
                                             .shape = {outputs, inputs}, .has_bias = has_bias})));
}

LinearParameters GptBlockImpl::whole_parameters(const std::string& name) const {
  const auto layer = std::dynamic_pointer_cast<LayerWeightsImpl>(named_children()[name]);
  return {layer->weight, layer->bias};
}

std::shared_ptr<ColumnParallelLinearImpl> GptBlockImpl::cut_outputs(const ReplicaAxis& axis,
                                                                    const std::string& name,
                                                                    std::vector<int64_t> sections) {
  const ColumnParallelLinearOptions options{.sections = std::move(sections)};
  return replace_module(name,
                        std::make_shared<ColumnParallelLinearImpl>(axis, whole_parameters(name), options));
}

GptBlockImpl::Output GptBlockImpl::cut_inputs(const ReplicaAxis& axis, const std::string& name) {
  const auto layer =
      replace_module(name, std::make_shared<RowParallelLinearImpl>(axis, whole_parameters(name)));
  return [layer](const torch::Tensor& x, const GptPass& pass) {
    return pass.shards != nullptr ? layer->forward_to_shards(x, 1) : layer->forward(x);
  };
}

void GptBlockImpl::cut(const ReplicaAxis& axis) {
  const int64_t keys = options_.num_key_value_heads * options_.head_width;
  cut_qkv_ = cut_outputs(axis, "qkv", {options_.num_heads * options_.head_width, keys, keys});
  qkv_ = linear_by(cut_qkv_);
  attention_output_ = cut_inputs(axis, "attention_output");
  options_.num_heads /= axis.size();
  options_.num_key_value_heads /= axis.size();
  if (!experts_.is_empty()) return;
  if (gate_) gate_ = linear_by(cut_outputs(axis, "gate"));
  up_ = linear_by(cut_outputs(axis, "up"));
  down_ = cut_inputs(axis, "down");
  options_.hidden_width /= axis.size();
}

torch::Tensor GptBlockImpl::to_parts(const torch::Tensor& x, const GptPass& pass) const {
  if (pass.shards != nullptr) return pass.shards->gather_shards(x, 1);
  return cut_qkv_ != nullptr ? cut_qkv_->parallel_axis().copy_to_parts(x) : x;
}

torch::Tensor GptBlockImpl::own_attention(const torch::Tensor& queries, const torch::Tensor& keys,
                                          const torch::Tensor& values, const GptPass& pass) const {
  if (pass.context != nullptr) return pass.context->forward(queries, keys, values, *pass.order);
  const AttentionOptions how{.mask = pass.mask,
                             .is_causal = pass.is_causal,
                             .dropout = pass.is_training ? options_.attention_dropout : 0};
  if (how.dropout == 0 || cut_qkv_ == nullptr) return attend(queries, keys, values, how);
  const RankRandom own = cut_qkv_->parallel_axis().rank_random();  // of heads that no other rank has
  return attend(queries, keys, values, how);
}

torch::Tensor GptBlockImpl::attention(const torch::Tensor& x, const GptPass& pass) {
  const int64_t heads = options_.num_heads;
  const int64_t shared = options_.num_key_value_heads;
  const auto qkv = qkv_(to_parts(x, pass)).unflatten(-1, {heads + 2 * shared, options_.head_width});
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
  const auto attended = own_attention(parts[0], parts[1], parts[2], pass);
  return attention_output_(attended.transpose(1, 2).flatten(2), pass);
}

torch::Tensor GptBlockImpl::mlp(const torch::Tensor& x, const GptPass& pass) {
  const auto copied = to_parts(x, pass);
  const auto hidden = up_(copied);
  switch (options_.activation) {
    case GptActivation::kGelu:
      return down_(torch::gelu(hidden), pass);
    case GptActivation::kGeluTanh:
      return down_(torch::gelu(hidden, "tanh"), pass);
    case GptActivation::kSwiGlu:
      break;
  }
  return down_(torch::silu(gate_(copied)) * hidden, pass);
}

/// Experts are the same on the ranks of a layer that is cut, which have the same tokens.
MixtureOutput GptBlockImpl::mix(const torch::Tensor& x, const GptPass& pass) const {
  const auto all = pass.shards != nullptr ? pass.shards->gather_parts(x, 1) : x;
  auto mixed = pass.order ? experts_.ptr()->mix(all, pass.is_training, *pass.order)
                          : experts_.ptr()->mix(all, pass.is_training);
  if (pass.shards != nullptr) mixed.output = pass.shards->own_part(mixed.output, 1);
  return mixed;
}

torch::Tensor GptBlockImpl::forward(const torch::Tensor& input, const GptPass& pass) {
  RoutedFeatures given{.features = input, .routing = {}};
  if (pass.collects_routing) given = split_routing(input);
  const torch::Tensor& x = given.features;
  const auto dropout = [&](const torch::Tensor& added) {
    return dropout_in(pass, added, options_.residual_dropout);
  };
  const auto normed = [&](const torch::Tensor& features, const LayerWeights& norm) {
    return normalize(features, norm, options_, pass.shards);
  };
  const auto attended = x + dropout(attention(normed(x, attention_norm_), pass));
  const auto mlp_input = normed(attended, mlp_norm_);
  if (experts_.is_empty()) return attended + dropout(mlp(mlp_input, pass));
  const auto mixed = mix(mlp_input, pass);
  const auto output = attended + dropout(mixed.output);
  if (!pass.collects_routing) return output;
  const auto losses = torch::stack({mixed.balance_loss, mixed.z_loss}, -1).unsqueeze(1);
  return torch::cat({output, given.routing + losses.to(given.routing.scalar_type())}, -1);
}

}  // namespace lockstep
