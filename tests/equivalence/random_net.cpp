#include "lockstep/tests/equivalence/random_net.h"

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"

namespace lockstep {
namespace {

using Kind = LayerPlan::Kind;

constexpr double kNormEpsilon = 1e-2;  // A smaller one magnifies rounding if values are close.
constexpr int64_t kLeastLayerNorm = 3;

/// Any layer of a random net: [n, inputs] to [n, outputs].
struct LayerImpl : torch::nn::Module {
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
};
using Layer = std::shared_ptr<LayerImpl>;

struct TanhLayer final : LayerImpl {
  TanhLayer(const LayerPlan& plan, NetPlace& place) {
    const double scale = 1 / std::sqrt(static_cast<double>(plan.inputs));
    const auto draw = [&](at::IntArrayRef sizes) {
      return scale * torch::randn(sizes, place.values, torch::kDouble);
    };
    weight = register_parameter("weight", draw({plan.outputs, plan.inputs}), !plan.is_frozen);
    bias = register_parameter("bias", draw({plan.outputs}), !plan.is_frozen);
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const auto y = torch::tanh(torch::linear(x, weight, bias));
    return weight.size(0) == weight.size(1) ? x + y : y;
  }
  torch::Tensor weight, bias;
};

struct LayerNormLayer final : LayerImpl {
  LayerNormLayer(const LayerPlan& plan, NetPlace& place) {
    weight = register_parameter("weight", torch::randn({plan.inputs}, place.values, torch::kDouble),
                                !plan.is_frozen);
    bias = register_parameter("bias", torch::zeros({plan.inputs}, torch::kDouble), !plan.is_frozen);
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::layer_norm(x, weight.sizes(), weight, bias, kNormEpsilon);
  }
  torch::Tensor weight, bias;
};

template <typename Norm>
struct BatchNormLayer final : LayerImpl {
  explicit BatchNormLayer(const LayerPlan& plan) {
    norm = register_module("norm", Norm(torch::nn::BatchNormOptions(plan.inputs).eps(kNormEpsilon)));
    norm->to(torch::kDouble);
    for (auto& parameter : norm->parameters()) parameter.set_requires_grad(!plan.is_frozen);
  }
  torch::Tensor forward(const torch::Tensor& x) override { return norm->forward(x); }
  Norm norm{nullptr};
};

/// A layer as its block registers and calls it.
struct Part {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> call;
  torch::nn::AnyModule element;  // of a sequence
};

Part make_part(const LayerPlan& plan, NetPlace& place);

struct BlockLayer final : LayerImpl {
  BlockLayer(const LayerPlan& plan, NetPlace& place) {
    for (const auto& layer : plan.layers) {
      Part part = layer.kind == Kind::kAgain ? parts[layer.again] : make_part(layer, place);
      register_module(std::to_string(parts.size()), part.module);
      parts.push_back(part);
      auto call = part.call;
      if (place.replica != nullptr && layer.is_recomputed)
        call = [call](const torch::Tensor& x) { return recompute(call, x); };
      if (layer.is_used_twice) call = [call](const torch::Tensor& x) { return call(call(x)); };
      calls.push_back(std::move(call));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    auto y = x;
    for (const auto& call : calls) y = call(y);
    return y;
  }
  std::vector<Part> parts;
  std::vector<std::function<torch::Tensor(const torch::Tensor&)>> calls;
};

Layer make_plain_layer(const LayerPlan& plan, NetPlace& place) {
  switch (plan.kind) {
    case Kind::kLinear:
      return std::make_shared<TanhLayer>(plan, place);
    case Kind::kLayerNorm:
      return std::make_shared<LayerNormLayer>(plan, place);
    case Kind::kBatchNorm:
      if (place.replica != nullptr) return std::make_shared<BatchNormLayer<SyncBatchNorm>>(plan);
      return std::make_shared<BatchNormLayer<torch::nn::BatchNorm1d>>(plan);
    default:
      return std::make_shared<BlockLayer>(plan, place);
  }
}

template <typename Module>
Part part_of(const std::shared_ptr<Module>& module) {
  return {module, [module](const torch::Tensor& x) { return module->forward(x); },
          torch::nn::AnyModule(module)};
}

Part make_part(const LayerPlan& plan, NetPlace& place) {
  const auto in_unit = [&](const auto& layer) {
    if (!place.units || !plan.is_unit) return part_of(layer);
    UnitOptions options = *place.units;
    options.keep_until_backward = plan.keeps_until_backward;
    using Block = typename std::remove_cvref_t<decltype(layer)>::element_type;
    return part_of(std::make_shared<ShardedImpl<Block>>(options, layer));
  };
  if (plan.kind != Kind::kSequence || !place.units) return in_unit(make_plain_layer(plan, place));
  std::vector<ElementFactory> elements;
  for (const auto& layer : plan.layers)
    elements.emplace_back([&layer, &place] { return make_part(layer, place).element; });
  return in_unit(shard_elements(elements, *place.units, {.min_unit_bytes = plan.min_unit_bytes}).ptr());
}

struct RandomNetImpl final : ParityNetImpl {
  RandomNetImpl(const LayerPlan& plan, NetPlace& place) : net(make_part(plan, place)) {
    register_module("net", net.module);
  }
  torch::Tensor losses(const Example& batch) override {
    return (net.call(batch.data) - batch.target).square().sum(1);
  }
  Part net;
};

/// Draws nets.
class RandomNetPlanner {
 public:
  RandomNetPlanner(std::mt19937& random, const RandomNetOptions& options)
      : random_(random), options_(options) {}

  LayerPlan net() {
    auto plan = block(Kind::kBlock, width(), options_.depth, options_.has_batch_norms);
    plan.layers.push_back({.inputs = plan.outputs, .outputs = width(), .is_unit = draw(0.5)});
    plan.outputs = plan.layers.back().outputs;
    plan.is_unit = draw(0.4);
    return plan;
  }

 private:
  bool draw(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int64_t draw(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }
  int64_t width() {
    constexpr std::array<int64_t, 6> kWidths{1, 2, 3, 5, 8, 17};
    return kWidths[static_cast<size_t>(draw(int64_t{0}, int64_t{5}))];
  }

  LayerPlan block(Kind kind, int64_t inputs, int depth, bool has_batch_norms) {
    LayerPlan plan{.kind = kind, .inputs = inputs, .outputs = inputs};
    const int64_t num_layers = draw(int64_t{1}, int64_t{4});
    for (int64_t i = 0; i < num_layers; ++i) {
      plan.layers.push_back(layer(plan, depth, has_batch_norms));
      plan.outputs = plan.layers.back().outputs;
    }
    if (kind == Kind::kSequence) plan.min_unit_bytes = draw(0.5) ? draw(int64_t{1}, int64_t{600}) : 0;
    return plan;
  }

  LayerPlan layer(const LayerPlan& block_so_far, int depth, bool has_batch_norms) {
    const int64_t inputs = block_so_far.outputs;
    const bool is_in_sequence = block_so_far.kind == Kind::kSequence;
    const bool is_recomputed = !is_in_sequence && draw(0.2);
    const bool has_norms = has_batch_norms && !is_recomputed;  // recomputing would count a batch twice
    LayerPlan plan{.inputs = inputs, .outputs = inputs};
    const auto earlier = places_with_inputs(block_so_far, inputs);
    if (!is_in_sequence && !earlier.empty() && draw(0.2)) {
      const size_t place = earlier[static_cast<size_t>(draw(int64_t{0}, std::ssize(earlier) - 1))];
      plan.kind = Kind::kAgain;
      plan.again = place;
      plan.outputs = block_so_far.layers[place].outputs;
      const bool has_norm = any_layer(block_so_far.layers[place],
                                      [](const auto& layer) { return layer.kind == Kind::kBatchNorm; });
      plan.is_recomputed = is_recomputed && !has_norm;
      return plan;
    }
    if (depth > 0 && draw(0.5)) {
      plan = block(draw(0.3) ? Kind::kSequence : Kind::kBlock, inputs, depth - 1, has_norms);
    } else if (has_norms && draw(0.15)) {
      plan.kind = Kind::kBatchNorm;
    } else if (inputs >= kLeastLayerNorm && draw(0.2)) {
      plan.kind = Kind::kLayerNorm;
    } else if (draw(0.5)) {
      plan.outputs = width();
    }
    plan.is_frozen = !plan.has_layers() && draw(0.2);
    plan.is_unit = draw(0.5);
    plan.keeps_until_backward = draw(0.25);
    plan.is_recomputed = is_recomputed;
    plan.is_used_twice = !is_in_sequence && plan.inputs == plan.outputs && draw(0.15);
    return plan;
  }

  /// Returns the places of the block's layers whose modules a later one may use again.
  static std::vector<size_t> places_with_inputs(const LayerPlan& block, int64_t inputs) {
    std::vector<size_t> places;
    for (size_t i = 0; i < block.layers.size(); ++i) {
      if (block.layers[i].kind != Kind::kAgain && block.layers[i].inputs == inputs) places.push_back(i);
    }
    return places;
  }

  std::mt19937& random_;
  const RandomNetOptions options_;
};

}  // namespace

bool any_layer(const LayerPlan& plan, const std::function<bool(const LayerPlan&)>& test) {
  return test(plan) || std::any_of(plan.layers.begin(), plan.layers.end(),
                                   [&](const auto& layer) { return any_layer(layer, test); });
}

std::string str(const LayerPlan& plan, int indent) {
  constexpr std::array kNames{"linear", "layer norm", "batch norm", "again", "block", "sequence"};
  std::string text = c10::str(std::string(static_cast<size_t>(2 * indent), ' '),
                              kNames[static_cast<size_t>(plan.kind)], " ", plan.inputs, " to ", plan.outputs);
  if (plan.kind == Kind::kAgain) text += c10::str(", layer ", plan.again);
  if (plan.kind == Kind::kSequence) text += c10::str(", units of ", plan.min_unit_bytes, " bytes");
  if (plan.is_frozen) text += ", frozen";
  if (plan.is_unit) text += plan.keeps_until_backward ? ", unit kept until backward" : ", unit";
  if (plan.is_recomputed) text += ", recomputed";
  if (plan.is_used_twice) text += ", used twice";
  text += "\n";
  for (const auto& layer : plan.layers) text += str(layer, indent + 1);
  return text;
}

LayerPlan random_net(std::mt19937& random, const RandomNetOptions& options) {
  return RandomNetPlanner(random, options).net();
}

void for_each_simpler(const LayerPlan& plan, const std::function<void(const LayerPlan&)>& use) {
  const auto use_changed = [&](const auto& change) {
    LayerPlan changed = plan;
    change(changed);
    use(changed);
  };
  const auto is_used_again = [&](size_t place) {
    return std::any_of(plan.layers.begin(), plan.layers.end(),
                       [&](const auto& other) { return other.kind == Kind::kAgain && other.again == place; });
  };
  const auto use_without = [&](size_t place, const auto& change) {
    use_changed([&](auto& changed) {
      change(changed);
      changed.layers.erase(changed.layers.begin() + static_cast<std::ptrdiff_t>(place));
      for (auto& other : changed.layers) other.again -= other.again > place ? 1 : 0;
    });
  };
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const auto& layer = plan.layers[i];
    if (layer.kind != Kind::kAgain && layer.inputs == plan.inputs && layer.outputs == plan.outputs)
      use(layer);
    if (layer.inputs == layer.outputs && !is_used_again(i) && plan.layers.size() > 1)
      use_without(i, [](const auto&) {});
    if (i > 0 && !is_used_again(i) && !is_used_again(i - 1)) {
      use_without(i, [&](auto& changed) {  // one linear layer instead of two layers
        changed.layers[i - 1] = {.inputs = plan.layers[i - 1].inputs,
                                 .outputs = layer.outputs,
                                 .is_unit = plan.layers[i - 1].is_unit || layer.is_unit};
      });
    }
    for_each_simpler(layer, [&](const auto& simpler) {
      use_changed([&](auto& changed) {
        changed.layers[i] = simpler;
        // A sequence calls its elements itself.
        changed.layers[i].is_recomputed &= plan.kind != Kind::kSequence;
        changed.layers[i].is_used_twice &= plan.kind != Kind::kSequence;
      });
    });
  }
  if (plan.kind != Kind::kLinear && plan.kind != Kind::kBlock) {
    use_changed([](auto& changed) { changed.kind = changed.has_layers() ? Kind::kBlock : Kind::kLinear; });
  }
  if (plan.has_layers()) {
    use({.inputs = plan.inputs, .outputs = plan.outputs, .is_unit = plan.is_unit});
  }
  for (const auto flag : {&LayerPlan::is_frozen, &LayerPlan::is_unit, &LayerPlan::keeps_until_backward,
                          &LayerPlan::is_recomputed, &LayerPlan::is_used_twice}) {
    if (plan.*flag) use_changed([&](auto& changed) { changed.*flag = false; });
  }
}

LayerPlan with_width(LayerPlan plan, int64_t width) {
  plan.inputs = plan.outputs = width;
  for (auto& layer : plan.layers) layer = with_width(layer, width);
  return plan;
}

ParityNet make_random_net(const LayerPlan& plan, NetPlace& place) {
  return std::make_shared<RandomNetImpl>(plan, place);
}

}  // namespace lockstep
