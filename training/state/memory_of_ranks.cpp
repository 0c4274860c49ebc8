#include "lockstep/training/state/memory_of_ranks.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/sharded_parameters.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/training/state/internal/distinct_memory.h"
#include "lockstep/training/state/internal/state_memory.h"

namespace lockstep {
namespace {

/// The units of a model, each once.
std::vector<const ShardedModule*> units_of(const torch::nn::Module& module) {
  std::vector<const ShardedModule*> units;
  for (const auto& part : module.modules()) {
    auto* owner = dynamic_cast<HasShardedUnits*>(part.get());
    if (owner == nullptr) continue;
    for (const auto* unit : owner->sharded_units()) {
      if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
    }
  }
  return units;
}

/// Returns how many units may be whole at a time.
int64_t units_at_once(const std::vector<const ShardedModule*>& units) {
  int64_t kept = 0, deepest = 1;
  for (const auto* unit : units) {
    if (unit->unit_options().keep_until_backward) ++kept;
    if (unit->unit_options().overlap && units.size() > 1) deepest = 2;
    const auto inside = units_of(*unit);  // with itself
    deepest = std::max(deepest, static_cast<int64_t>(inside.size() > 1 ? 2 : 1));
  }
  return std::max(kept, deepest);
}

/// Adds the memory in which the optimizer's gradients are summed.
void add_sums(const GradientBuckets& buckets, bool are_kept_apart, const GradientReducer::Statistics& most,
              DistinctMemory& memory, MemoryParts& parts) {
  int64_t sums = 0;
  int64_t whole = 0;  // of buckets that always have memory
  for (size_t i = 0; i < buckets.size(); ++i) {
    const bool is_kept_apart = are_kept_apart && buckets.is_in_parts(i);
    const int64_t bytes = memory.add(is_kept_apart ? buckets.own_part(i) : buckets.flat(i));
    sums += bytes;
    if (!is_kept_apart) whole += bytes;
  }
  parts.gradients += sums;
  parts.buckets += (are_kept_apart ? most.peak_bucket_bytes : buckets.bytes()) - whole;
}

MemoryParts measured_parts(const torch::nn::Module& module, const torch::optim::Optimizer* optimizer,
                           const OptimizerOnReplica& on_replica) {
  constexpr int kApart = 2;  // the stage in which sums are kept apart
  DistinctMemory memory;
  MemoryParts parts;
  if (const auto* reducer = on_replica.reducer) {
    add_sums(reducer->buckets(), on_replica.sharding_stage == kApart, reducer->statistics(), memory, parts);
  }
  for (const auto& parameter : module.parameters()) {
    parts.parameters += memory.add(parameter);
    parts.gradients += memory.add(parameter.grad());
  }
  if (optimizer != nullptr) parts.optimizer_state = state_bytes(*optimizer, on_replica.part, memory);
  const auto units = units_of(module);
  if (units.empty()) return parts;
  if (const auto counter = units.front()->gathered_units())
    parts.gathered_units = counter->counts().most_bytes;
  return parts;
}

/// Returns whether other ranks alone compute with the unit, which has given its parts up.
bool is_of_other_stages(const ShardedModule& unit) {
  const auto parts = unit.parameters();
  return std::all_of(parts.begin(), parts.end(),
                     [](const auto& part) { return part.numel() == 0 && !axis_of_stages(part).empty(); });
}

bool has_parameter_servers(const Strategy& strategy) {
  const auto* cluster = strategy.cluster_resolver();
  return cluster != nullptr && cluster->cluster_spec().has_job("ps");
}

}  // namespace

MemoryLayout memory_layout(Strategy& strategy, const torch::nn::Module& module,
                           const torch::optim::Optimizer& optimizer) {
  MemoryLayout layout;
  const auto on_replicas = strategy.extended().optimizers_on_replicas(optimizer);
  std::unordered_set<const void*> sparse;
  if (!on_replicas.empty()) {
    layout.stage = on_replicas[0].sharding_stage;
    layout.num_parts = on_replicas[0].num_parts;
    if (const auto* reducer = on_replicas[0].reducer) {
      layout.buckets = reducer->buckets().options();
      if (const auto dtype = reducer->buckets().wire_dtype())
        layout.summed_element_bytes = static_cast<int64_t>(c10::elementSize(*dtype));
      for (size_t i = 0; i < reducer->parameters().size(); ++i) {
        const auto& parameter = reducer->parameters()[i];
        if (parameter.requires_grad() && !reducer->buckets().has_slot(i))
          sparse.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  std::unordered_map<const void*, std::optional<int64_t>> states;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      states[parameter.unsafeGetTensorImpl()] = states_of_group(group);
    }
  }
  std::unordered_map<const void*, int64_t> unit_of;
  auto units = units_of(module);
  std::erase_if(units, [](const auto* unit) { return is_of_other_stages(*unit); });
  for (size_t i = 0; i < units.size(); ++i) {
    for (const auto& shard : units[i]->parameters()) {
      if (units[i]->gathers(shard)) unit_of[shard.unsafeGetTensorImpl()] = static_cast<int64_t>(i);
    }
  }
  // Shards of a single rank have no optimizer that knows them.
  if (!units.empty()) layout.stage = 3;
  layout.units_at_once = units_at_once(units);
  for (const auto* unit : units) {
    const int64_t ranks = unit->num_sharing();
    layout.units_shared_by = unit == units.front() ? ranks : std::min(layout.units_shared_by, ranks);
  }
  std::unordered_set<const void*> seen;
  for (const auto& parameter : module.parameters()) {
    const void* key = parameter.unsafeGetTensorImpl();
    if (!seen.insert(key).second) continue;
    const auto unit = unit_of.find(key);
    const auto state = states.find(key);
    layout.parameters.push_back({.elements = unit != unit_of.end()
                                                 ? sharded_parameter_of(parameter)->num_elements_along_axis()
                                                 : parameter.numel(),
                                 .element_bytes = static_cast<int64_t>(parameter.element_size()),
                                 .states = state == states.end() ? std::optional<int64_t>(0) : state->second,
                                 .is_trained = parameter.requires_grad(),
                                 .has_sparse_gradient = sparse.contains(key),
                                 .unit = unit == unit_of.end() ? std::nullopt : std::optional(unit->second),
                                 .is_part = is_slice(parameter)});
  }
  return layout;
}

std::vector<RankMemory> memory_of_ranks(Strategy& strategy, const std::vector<ModulePointer>& modules,
                                        const std::vector<torch::optim::Optimizer*>& optimizers) {
  std::vector<RankMemory> ranks;
  ranks.reserve(modules.size());
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto* optimizer = i < optimizers.size() ? optimizers[i] : nullptr;
    const auto on_replicas = optimizer == nullptr ? std::vector<OptimizerOnReplica>{}
                                                  : strategy.extended().optimizers_on_replicas(*optimizer);
    const OptimizerOnReplica on_replica = i < on_replicas.size() ? on_replicas[i] : OptimizerOnReplica{};
    RankMemory rank{.rank = strategy.first_local_replica() + static_cast<int64_t>(i),
                    .measured = measured_parts(*modules[i], optimizer, on_replica)};
    if (i < on_replicas.size() && !has_parameter_servers(strategy))
      rank.predicted = predict_memory(memory_layout(strategy, *modules[i], *optimizer));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace lockstep
