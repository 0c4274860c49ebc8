#include "lockstep/strategies/parallel/parallelize.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/parallel/internal/parallelized_layers.h"
#include "lockstep/strategies/parallel/internal/plan_match.h"

namespace lockstep {
namespace {

constexpr const char* kParallelize = "parallelize";
constexpr const char* kLayersName = "parallelized_layers";

/// A module inside the one to cut.
struct PlannedModule {
  std::string name;
  torch::nn::Module* module = nullptr;
  const ParallelPlanLine* line = nullptr;  ///< none: it stays whole

  torch::nn::LinearImpl* linear() const { return dynamic_cast<torch::nn::LinearImpl*>(module); }
  torch::nn::EmbeddingImpl* embedding() const { return dynamic_cast<torch::nn::EmbeddingImpl*>(module); }
  bool can_be_cut() const { return linear() != nullptr || embedding() != nullptr; }
  const ColwiseParallel* colwise() const { return std::get_if<ColwiseParallel>(&line->style); }
  const RowwiseParallel* rowwise() const { return std::get_if<RowwiseParallel>(&line->style); }
  /// The dimension along which its line cuts the weight.
  int64_t dim() const { return (colwise() != nullptr) == (linear() != nullptr) ? 0 : 1; }
  torch::Tensor weight() const {
    if (auto* own = linear()) return own->weight;
    if (auto* own = embedding()) return own->weight;
    if (auto* own = dynamic_cast<torch::nn::LayerNormImpl*>(module)) return own->weight;
    return {};
  }
};

/// A weight, and the modules that have it.
struct PlannedWeight {
  torch::Tensor weight;
  std::vector<const PlannedModule*> users;

  const PlannedModule* planned() const {
    const auto found =
        std::find_if(users.begin(), users.end(), [](const auto* user) { return user->line != nullptr; });
    return found == users.end() ? nullptr : *found;
  }
};

bool is_of_attention(const std::string& name,
                     const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>& all) {
  for (size_t end = name.size(); end != std::string::npos;
       end = end == 0 ? std::string::npos : name.rfind('.', end - 1)) {
    const auto* module = all.find(name.substr(0, end));
    if (module != nullptr && dynamic_cast<torch::nn::MultiheadAttentionImpl*>(module->get()) != nullptr)
      return true;
  }
  return false;
}

std::string list_names(const std::vector<const PlannedModule*>& modules) {
  std::string text;
  for (const auto* module : modules) text += (text.empty() ? "'" : ", '") + module->name + "'";
  return text;
}

/// Throws if a module cannot be cut as its line says.
void check_module(const PlannedModule& module, const ParallelAxis& axis) {
  const auto named = "'" + module.name + "', which the plan's line " + text_of_line(*module.line) + " names";
  if (!module.can_be_cut()) {
    throw InvalidArgument(
        c10::str("[parallelize] expected a torch::nn::Linear or a torch::nn::Embedding to cut, but ", named,
                 ", is a ", module.module->name()));
  }
  const auto weight = module.weight();
  if (is_shard(weight))
    throw InvalidArgument("[parallelize] expected a whole layer to cut, but " + named + ", is cut already");
  const auto* colwise = module.colwise();
  if (auto* embedding = module.embedding()) {
    const auto& options = embedding->options;
    if (options.max_norm() || options.scale_grad_by_freq() || options.sparse()) {
      throw InvalidArgument(
          c10::str("[parallelize] expected an embedding without max_norm, scale_grad_by_freq and sparse "
                   "to cut, but ",
                   named, ", has ",
                   options.max_norm() ? "max_norm"
                   : options.sparse() ? "sparse"
                                      : "scale_grad_by_freq"));
    }
    if (colwise != nullptr && !colwise->sections.empty())
      throw InvalidArgument("[parallelize] expected no sections for an embedding, but got some for " + named);
    axis.share_of(weight.size(module.dim()),
                  (module.dim() == 0 ? "num_embeddings of '" : "embedding_dim of '") + module.name + "'");
    return;
  }
  axis.share_of(weight.size(module.dim()),
                (module.dim() == 0 ? "out_features of '" : "in_features of '") + module.name + "'");
  if (colwise == nullptr || colwise->sections.empty()) return;
  if (colwise->gather_output)
    throw InvalidArgument("[parallelize] expected no sections with gather_output, but got both for " + named);
  for (const int64_t section : colwise->sections) axis.share_of(section, "sections of '" + module.name + "'");
  const int64_t sum = std::accumulate(colwise->sections.begin(), colwise->sections.end(), int64_t{0});
  if (sum != weight.size(0)) {
    throw InvalidArgument(c10::str("[parallelize] expected sections with ", weight.size(0),
                                   " features together, but got ", sum, " for ", named));
  }
}

/// Returns whether the line of one of two modules with the same weight leaves the other one as the plan says.
bool can_share(const PlannedModule& planned, const PlannedModule& other) {
  const auto* colwise = planned.colwise();
  if (colwise != nullptr && !colwise->sections.empty()) return false;
  const bool is_same_type = (planned.linear() != nullptr) == (other.linear() != nullptr);
  if (other.line == nullptr) return !is_same_type;
  return planned.dim() == other.dim() && (!is_same_type || planned.line == other.line);
}

/// Throws if the modules that have a weight do not agree on it.
void check_weight(const PlannedWeight& weight) {
  for (const auto* planned : weight.users) {
    if (planned->line == nullptr) continue;
    for (const auto* user : weight.users) {
      if (user == planned || can_share(*planned, *user)) continue;
      throw InvalidArgument(
          "[parallelize] expected modules with one weight to be cut alike, and without sections, but " +
          list_names(weight.users) + " share theirs, and the plan cuts '" + planned->name + "' by " +
          text_of_line(*planned->line) + " and '" + user->name + "' " +
          (user->line == nullptr ? "not at all" : "by " + text_of_line(*user->line)));
    }
  }
}

ShardedParameter place_of_part(const std::string& name, const torch::Tensor& whole, int64_t dim,
                               const std::vector<int64_t>& sections, const ParallelAxis& axis) {
  const int64_t length = whole.size(dim) / axis.size();
  return {.name = name,
          .sizes = whole.sizes().vec(),
          .strides = whole.strides().vec(),
          .offset = axis.index() * length,
          .length = length,
          .axis = axis.name(),
          .dim = dim,
          .sections = sections};
}

/// Replaces the values of a parameter by those of the rank's part, for all that share it.
ShardedParameter cut_in_place(const std::string& name, torch::Tensor parameter, int64_t dim,
                              const std::vector<int64_t>& sections, const ParallelAxis& axis) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = parameter.detach().contiguous();
  const ShardedParameter place = place_of_part(name, whole, dim, sections, axis);
  parameter.mutable_grad() = torch::Tensor();
  parameter.set_data(part_of_cut(whole, place));
  return place;
}

/// Sets how the layer's operations use the cut weight.
void plan_uses(ParallelizedLayer& layer, const PlannedWeight& weight) {
  for (const auto* user : weight.users) {
    if (auto* embedding = user->embedding()) {
      // The module compares it with the number of the part's rows, so the layer keeps it.
      if (const auto padding = std::exchange(embedding->options.padding_idx(), std::nullopt))
        layer.table.padding_idx = padding;
    }
    if (user->line == nullptr) continue;
    layer.line = text_of_line(*user->line);
    const auto* colwise = user->colwise();
    if (user->embedding() != nullptr) {
      layer.table.gather_output = colwise == nullptr || colwise->gather_output;
    } else if (colwise != nullptr) {
      layer.linear.gather_output = colwise->gather_output;
    } else {
      layer.linear.input_is_parallel = user->rowwise()->input_is_parallel;
    }
  }
}

void cut_weight(const PlannedWeight& weight, const ParallelAxis& axis, const ReplicaAxis& along,
                ParallelizedLayers& layers) {
  const auto* planned = weight.planned();
  if (planned == nullptr && is_shard(weight.weight)) return;  // cut earlier
  const auto* named = planned != nullptr ? planned : weight.users.front();
  auto layer =
      std::make_shared<ParallelizedLayer>(named->name, weight.weight.sizes().vec(), along, layers.trace());
  if (planned != nullptr && axis.size() > 1) {
    plan_uses(*layer, weight);
    const auto* colwise = planned->colwise();
    const auto sections = colwise != nullptr ? colwise->sections : std::vector<int64_t>();
    layer->cut = cut_in_place(named->name + ".weight", weight.weight, planned->dim(), sections, axis);
    if (layer->returns_part_of_linear()) {
      for (const auto* user : weight.users) {
        auto* linear = user->linear();
        if (linear == nullptr || !linear->bias.defined() || is_cut(linear->bias)) continue;
        const auto name = user->name + ".bias";
        layers.add_part(name, linear->bias, cut_in_place(name, linear->bias, 0, sections, axis));
      }
    }
  }
  layers.add_weight(named->name + ".weight", weight.weight, layer);
}

/// Returns the module's layers, which are those of an earlier call if there was one.
std::shared_ptr<ParallelizedLayers> layers_of(torch::nn::Module& module) {
  const auto children = module.named_children();
  if (const auto* known = children.find(kLayersName)) {
    if (auto layers = std::dynamic_pointer_cast<ParallelizedLayers>(*known)) return layers;
  }
  return module.register_module(kLayersName, std::make_shared<ParallelizedLayers>());
}

}  // namespace

std::shared_ptr<ParallelizedLayers> parallelize_layers(torch::nn::Module& module, const ReplicaAxis& along,
                                                       const ParallelPlan& plan) {
  const ParallelAxis axis(kParallelize, along);
  const auto all = module.named_modules("", /*include_self=*/false);
  std::vector<PlannedModule> modules;
  std::vector<std::string> can_be_cut;
  for (const auto& item : all) {
    if (dynamic_cast<ParallelizedLayers*>(item.value().get()) != nullptr) continue;
    modules.push_back({item.key(), item.value().get()});
    if (modules.back().can_be_cut() && !is_of_attention(item.key(), all)) can_be_cut.push_back(item.key());
  }
  for (const auto& line : plan) {
    bool is_known = false;
    bool is_first = false;
    for (auto& candidate : modules) {
      if (!names_module(line.modules, candidate.name)) continue;
      is_known = true;
      if (candidate.line != nullptr) continue;
      is_first = true;
      candidate.line = &line;
      if (is_of_attention(candidate.name, all)) {
        throw InvalidArgument("[parallelize] expected a layer to cut, but '" + candidate.name +
                              "', which the plan's line " + text_of_line(line) +
                              " names, belongs to a torch::nn::MultiheadAttention, which computes all of its "
                              "heads at once: leave it out of "
                              "the plan, or compute attention with linear layers for queries, keys and "
                              "values (ColwiseParallel) and for "
                              "the output (RowwiseParallel)");
      }
      check_module(candidate, axis);
    }
    if (!is_known) refuse_unmatched(line, can_be_cut);
    if (!is_first) {
      throw InvalidArgument(
          "[parallelize] expected the plan's line " + text_of_line(line) +
          " to name a module that no earlier line names, but earlier lines name all of its modules");
    }
  }
  std::vector<PlannedWeight> weights;
  for (const auto& candidate : modules) {
    const auto weight = candidate.weight();
    if (!weight.defined()) continue;
    const auto known = std::find_if(weights.begin(), weights.end(),
                                    [&](const auto& other) { return other.weight.is_same(weight); });
    if (known == weights.end()) {
      weights.push_back({weight, {&candidate}});
    } else if (std::none_of(known->users.begin(), known->users.end(),
                            [&](const auto* user) { return user->module == candidate.module; })) {
      known->users.push_back(&candidate);
    }
  }
  for (const auto& weight : weights) check_weight(weight);
  const auto layers = layers_of(module);
  for (const auto& weight : weights) cut_weight(weight, axis, along, *layers);
  watch_weights();
  return layers;
}

void parallelize(torch::nn::Module& module, const ReplicaAxis& axis, const ParallelPlan& plan) {
  if (plan.empty())
    throw InvalidArgument(
        "[parallelize] expected a plan with a line for each layer to cut, but got an empty one");
  parallelize_layers(module, axis, plan);
}

}  // namespace lockstep
