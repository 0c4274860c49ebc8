#include "lockstep/strategies/parallel/internal/stage_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/sharding/sharded_module.h"

namespace lockstep {
namespace {

struct NamedUses {
  std::string name;
  torch::Tensor parameter;
  std::vector<size_t> stages;
  std::vector<int> ranks;
};

template <typename T>
void append_if_new(std::vector<T>& to, T value) {
  if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

/// Returns the parameters of all blocks, each once, with the stages and the ranks that use it.
std::vector<NamedUses> uses_of_parameters(const std::vector<BlockParameters>& parameters,
                                          const StagePlaces& places) {
  std::vector<NamedUses> all;
  size_t stage = 0;
  for (size_t block = 0; block < parameters.size(); ++block) {
    if (stage + 1 < places.firsts.size() && places.firsts[stage + 1] == block) ++stage;
    for (const auto& [name, parameter] : parameters[block]) {
      auto known = std::find_if(all.begin(), all.end(), [&, &own = parameter](const auto& other) {
        return other.parameter.is_same(own);
      });
      if (known == all.end()) {
        all.push_back({name, parameter, {}, {}});
        known = all.end() - 1;
      }
      append_if_new(known->stages, stage);
      append_if_new(known->ranks, places.rank_of_stage[stage]);
    }
  }
  return all;
}

ShardedParameter place_in_stage(const NamedUses& uses, const std::string& axis) {
  const torch::Tensor& parameter = uses.parameter;
  if (const auto* known = sharded_parameter_of(parameter)) {
    ShardedParameter place = *known;
    place.stage_axis = axis;
    return place;
  }
  if (parameter.dim() == 0) {
    throw InvalidArgument("[Pipeline] expected parameters with dimensions, but " + uses.name +
                          " has none: give it the shape [1]");
  }
  return {.name = uses.name,
          .sizes = parameter.sizes().vec(),
          .strides = parameter.strides().vec(),
          .offset = 0,
          .length = parameter.size(0),
          .axis = axis,
          .dim = 0,
          .stage_axis = axis};
}

/// Frees the units of which this rank has no parameter.
void give_up_units(const std::vector<PipelineBlock>& blocks, const std::vector<torch::Tensor>& own) {
  const auto is_own = [&](const torch::Tensor& parameter) {
    return std::any_of(own.begin(), own.end(), [&](const auto& other) { return other.is_same(parameter); });
  };
  for (const auto& block : blocks) {
    for (const auto& root : block.modules) {
      for (const auto& module : root->modules()) {
        auto* unit = dynamic_cast<ShardedModule*>(module.get());
        if (unit == nullptr) continue;
        const auto parameters = unit->parameters();
        if (std::none_of(parameters.begin(), parameters.end(), is_own)) unit->give_up();
      }
    }
  }
}

}  // namespace

std::vector<BlockParameters> parameters_of_blocks(const std::vector<PipelineBlock>& blocks) {
  std::vector<BlockParameters> all;
  for (const auto& block : blocks) {
    auto& own = all.emplace_back();
    for (const auto& module : block.modules) {
      for (const auto& item : module->named_parameters()) {
        const bool is_known = std::any_of(
            own.begin(), own.end(), [&](const auto& other) { return other.second.is_same(item.value()); });
        if (!is_known) own.emplace_back(block.name + "." + item.key(), item.value());
      }
    }
  }
  return all;
}

double bytes_of_block(const BlockParameters& parameters) {
  double bytes = 0;
  for (const auto& [name, parameter] : parameters) {
    const int64_t elements =
        is_slice(parameter) ? sharded_parameter_of(parameter)->num_elements_along_axis() : parameter.numel();
    bytes += static_cast<double>(elements) * static_cast<double>(parameter.element_size());
  }
  return bytes;
}

bool StageParameters::has_slices() const {
  return std::any_of(own_.begin(), own_.end(), is_slice) ||
         std::any_of(others_.begin(), others_.end(), is_slice);
}

StageParameters::StageParameters(const std::vector<PipelineBlock>& blocks,
                                 const std::vector<BlockParameters>& parameters, const StagePlaces& places)
    : of_stages_(places.firsts.size()) {
  const torch::NoGradGuard no_grad;
  const auto& [firsts, rank_of_stage, rank, num_ranks, axis] = places;
  for (auto& uses : uses_of_parameters(parameters, places)) {
    const bool is_own = std::find(uses.ranks.begin(), uses.ranks.end(), rank) != uses.ranks.end();
    for (const size_t stage : uses.stages)
      if (rank_of_stage[stage] == rank) of_stages_[stage].push_back(own_.size());
    (is_own ? own_ : others_).push_back(uses.parameter);
    if (num_ranks == 1) continue;
    auto place = place_in_stage(uses, axis);
    if (!is_own) place.length = 0;
    place.is_copy = is_own && uses.ranks.front() != rank;
    marks_.emplace_back(uses.parameter, std::move(place));
    if (uses.ranks.size() > 1) shared_.push_back({uses.parameter, std::move(uses.ranks)});
  }
  if (num_ranks > 1) give_up_units(blocks, own_);
  for (const auto& [parameter, place] : marks_) {
    if (place.length > 0 || parameter.numel() == 0) continue;
    const auto sizes = place.dim ? sizes_of_cut(place) : std::vector<int64_t>{0};
    parameter.set_data(at::empty(sizes, parameter.options().requires_grad(false)));
  }
  mark();
}

void StageParameters::mark() const {
  for (const auto& [parameter, place] : marks_) mark_shard(parameter, place);
}

}  // namespace lockstep
