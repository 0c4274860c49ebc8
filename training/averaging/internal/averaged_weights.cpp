#include "lockstep/training/averaging/internal/averaged_weights.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/state/internal/sharded_states.h"

namespace lockstep {
namespace {

/// Returns the positions of the tensors, each once: parameters() lists tied weights under each of their
/// names.
std::vector<size_t> distinct(const std::vector<torch::Tensor>& tensors) {
  std::unordered_set<const void*> seen;
  std::vector<size_t> positions;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (seen.insert(tensors[i].unsafeGetTensorImpl()).second) positions.push_back(i);
  return positions;
}

/// Returns a clone of each tensor. Those of tied weights are one tensor, too.
std::vector<torch::Tensor> clones_of(const std::vector<torch::Tensor>& tensors) {
  std::unordered_map<const void*, torch::Tensor> known;
  std::vector<torch::Tensor> clones;
  for (const auto& tensor : tensors) {
    torch::Tensor& clone = known[tensor.unsafeGetTensorImpl()];
    if (!clone.defined()) clone = tensor.detach().clone();
    clones.push_back(clone);
  }
  return clones;
}

/// Moves those averages that have a mean, and copies the others.
void move_towards(const std::vector<torch::Tensor>& averages, const std::vector<torch::Tensor>& values,
                  double weight) {
  std::vector<torch::Tensor> moving, targets, copies, sources;
  for (const size_t i : distinct(values)) {
    const bool has_mean = averages[i].is_floating_point() && weight < 1;
    (has_mean ? moving : copies).push_back(averages[i]);
    (has_mean ? targets : sources).push_back(values[i].detach());
  }
  if (!moving.empty()) at::_foreach_lerp_(moving, targets, weight);
  if (!copies.empty()) at::_foreach_copy_(copies, sources);
}

void exchange(const std::vector<torch::Tensor>& values, const std::vector<torch::Tensor>& averages) {
  for (const size_t i : distinct(values)) {
    const torch::Tensor value = values[i].detach();
    const torch::Tensor kept = value.clone();
    value.copy_(averages[i]);
    averages[i].copy_(kept);
  }
}

/// Calls `act(replica)` with the index of each local replica, in its own thread and on its device.
template <typename Act>
void on_replicas(const FitState::Objects& objects, const Act& act) {
  objects.strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    act(static_cast<size_t>(context.local_replica_id()));
  });
}

}  // namespace

void AveragedWeights::copy_model(const FitState::Objects& objects) {
  std::vector<OfReplica> copies(objects.modules.size());
  on_replicas(objects, [&](size_t replica) {
    const auto& module = *objects.modules[replica];
    refuse_shards("AveragedWeights", module);
    copies[replica] = {clones_of(module.parameters()), clones_of(module.buffers())};
  });
  replicas_ = std::move(copies);
}

void AveragedWeights::update(const FitState::Objects& objects, double weight, AveragedBuffers buffers) {
  if (replicas_.empty()) return copy_model(objects);
  on_replicas(objects, [&](size_t replica) {
    const auto& module = *objects.modules[replica];
    const auto& own = replicas_[replica];
    move_towards(own.parameters, module.parameters(), weight);
    move_towards(own.buffers, module.buffers(), buffers == AveragedBuffers::kAverage ? weight : 1);
  });
}

void AveragedWeights::clear() {
  replicas_.clear();
  is_in_model_ = false;
}

bool AveragedWeights::put_into_model(const FitState::Objects& objects) {
  if (replicas_.empty() || is_in_model_) return false;
  swap(objects);
  is_in_model_ = true;
  return true;
}

void AveragedWeights::take_out_of_model(const FitState::Objects& objects) {
  if (!is_in_model_) return;
  swap(objects);
  is_in_model_ = false;
}

void AveragedWeights::swap(const FitState::Objects& objects) const {
  on_replicas(objects, [&](size_t replica) {
    const auto& module = *objects.modules[replica];
    exchange(module.parameters(), replicas_[replica].parameters);
    exchange(module.buffers(), replicas_[replica].buffers);
  });
}

bool AveragedWeights::is_finite() const {
  if (replicas_.empty()) return true;
  const auto& parameters = replicas_.front().parameters;
  return std::all_of(parameters.begin(), parameters.end(), [](const torch::Tensor& tensor) {
    return !tensor.is_floating_point() || tensor.isfinite().all().item<bool>();
  });
}

StateValue AveragedWeights::save(const FitState::Objects& objects) {
  take_out_of_model(objects);
  if (replicas_.empty()) return {};
  const auto& first = *objects.modules.front();
  StateValue::Dict parameters;
  size_t at = 0;
  for (const auto& item : first.named_parameters())
    parameters.add(item.key(), replicas_.front().parameters[at++]);
  std::vector<torch::Tensor> local;
  for (const auto& own : replicas_) local.insert(local.end(), own.buffers.begin(), own.buffers.end());
  StateValue::Dict buffers;
  for (auto& [name, stacked] : stack_of_replicas(objects.strategy, first.named_buffers().keys(), local))
    buffers.add(name, stacked);
  StateValue::Dict state;
  state.add("parameters", std::move(parameters));
  state.add("buffers", std::move(buffers));
  return state;
}

void AveragedWeights::load(const FitState::Objects& objects, const StateView& saved) {
  clear();
  if (saved.is_none()) return;
  copy_model(objects);
  const torch::NoGradGuard no_grad;
  const StateView parameters = saved.at("parameters"), buffers = saved.at("buffers");
  const auto num_replicas = static_cast<int64_t>(objects.strategy.num_ranks());
  const auto rules = buffer_aggregations(*objects.modules.front());
  for (size_t local = 0; local < replicas_.size(); ++local) {
    const auto& module = *objects.modules[local];
    size_t at = 0;
    for (const auto& item : module.named_parameters()) {
      torch::Tensor& average = replicas_[local].parameters[at++];
      average.copy_(parameters.at(item.key()).tensor_like(average));
    }
    at = 0;
    for (const auto& item : module.named_buffers()) {
      torch::Tensor& average = replicas_[local].buffers[at++];
      const StateView stacked = buffers.at(item.key());
      const int64_t count = stacked.tensor().dim() > 0 ? stacked.tensor().size(0) : 0;
      if (count == 0) stacked.fail("the buffers of one or more replicas");
      auto shape = average.sizes().vec();
      shape.insert(shape.begin(), count);
      const auto of_replicas = stacked.tensor_like(average.unsqueeze(0).expand(shape)).unbind();
      const auto replica = local + static_cast<size_t>(objects.strategy.first_local_replica());
      const BufferAggregation rule = rules.at(item.key());
      if (count == num_replicas) {
        average.copy_(of_replicas[replica]);
      } else if (rule == BufferAggregation::kSum && replica != 0) {
        average.zero_();
      } else {
        average.copy_(aggregate_values(item.key(), rule, of_replicas));
      }
    }
  }
}

}  // namespace lockstep
