#include "lockstep/training/state/internal/model_copies.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/state/internal/sharded_states.h"

namespace lockstep {
namespace {

std::vector<torch::Tensor> clones_of(const std::vector<torch::Tensor>& tensors) {
  std::unordered_map<const void*, torch::Tensor> known;
  std::vector<torch::Tensor> clones;
  clones.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    torch::Tensor& clone = known[tensor.unsafeGetTensorImpl()];
    if (!clone.defined()) {
      clone = tensor.detach().clone();
      if (const auto* shard = sharded_parameter_of(tensor)) mark_shard(clone, *shard);
    }
    clones.push_back(clone);
  }
  return clones;
}

/// Copies the buffer of a replica, of all replicas' buffers that `saved` has.
void load_buffer(const Strategy& strategy, size_t local, const std::string& name, BufferAggregation rule,
                 const StateView& saved, torch::Tensor& copy) {
  const int64_t count = saved.tensor().dim() > 0 ? saved.tensor().size(0) : 0;
  if (count == 0) saved.fail("the buffers of one or more replicas");
  auto shape = copy.sizes().vec();
  shape.insert(shape.begin(), count);
  const auto of_replicas = saved.tensor_like(copy.unsqueeze(0).expand(shape)).unbind();
  const auto replica = static_cast<size_t>(strategy.replica_of(local));
  if (count == strategy.num_replicas_in_sync()) {
    copy.copy_(of_replicas[replica]);
  } else if (rule == BufferAggregation::kSum && replica != 0) {
    copy.zero_();
  } else {
    copy.copy_(aggregate_values(name, rule, of_replicas));
  }
}

}  // namespace

std::vector<ModelCopy> copies_of_model(Strategy& strategy, const std::vector<ModulePointer>& modules) {
  std::vector<ModelCopy> copies(modules.size());
  strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    const auto local = static_cast<size_t>(context.local_replica_id());
    copies[local] = {clones_of(modules[local]->parameters()), clones_of(modules[local]->buffers())};
  });
  return copies;
}

void put_back_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                     const std::vector<ModelCopy>& copies) {
  const auto put_back = [](const std::vector<torch::Tensor>& tensors,
                           const std::vector<torch::Tensor>& values) {
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(values[i]);
  };
  strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    const auto local = static_cast<size_t>(context.local_replica_id());
    put_back(modules[local]->parameters(), copies[local].parameters);
    put_back(modules[local]->buffers(), copies[local].buffers);
  });
}

StateValue::Dict save_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                             const std::vector<ModelCopy>& copies) {
  std::vector<NamedTensors> of_replicas(copies.size());
  std::vector<torch::Tensor> local_buffers;
  for (size_t local = 0; local < copies.size(); ++local) {
    const auto& [parameters, buffers] = copies[local];
    size_t at = 0;
    for (const auto& item : modules[local]->named_parameters())
      of_replicas[local].emplace_back(item.key(), parameters[at++]);
    if (strategy.is_first_of_replica(local))
      local_buffers.insert(local_buffers.end(), buffers.begin(), buffers.end());
  }
  StateValue::Dict parameters;
  for (const auto& [name, tensor] : divided_tensors(strategy, of_replicas)) parameters.add(name, tensor);
  StateValue::Dict buffers;
  for (const auto& [name, stacked] :
       stack_of_replicas(strategy, modules.front()->named_buffers().keys(), local_buffers))
    buffers.add(name, stacked);
  StateValue::Dict state;
  state.add("parameters", std::move(parameters));
  state.add("buffers", std::move(buffers));
  return state;
}

std::vector<ModelCopy> load_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                                   const StateView& saved) {
  auto copies = copies_of_model(strategy, modules);
  const torch::NoGradGuard no_grad;
  const StateView parameters = saved.at("parameters");
  const StateView buffers = saved.at("buffers");
  const auto rules = buffer_aggregations(*modules.front());
  for (size_t local = 0; local < copies.size(); ++local) {
    size_t at = 0;
    for (const auto& item : modules[local]->named_parameters()) {
      torch::Tensor& copy = copies[local].parameters[at++];
      copy.copy_(values_like(parameters.at(item.key()), copy));
    }
    at = 0;
    for (const auto& item : modules[local]->named_buffers())
      load_buffer(strategy, local, item.key(), rules.at(item.key()), buffers.at(item.key()),
                  copies[local].buffers[at++]);
  }
  return copies;
}

}  // namespace lockstep
