#include "lockstep/training/averaging/internal/averaged_weights.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <torch/utils.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/core/strategy.h"

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

void AveragedWeights::update(const FitState::Objects& objects, double weight, AveragedBuffers buffers) {
  if (replicas_.empty()) {
    replicas_ = copies_of_model(objects.strategy, objects.modules);
    return;
  }
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

bool AveragedWeights::is_finite(const FitState::Objects& objects) const {
  if (replicas_.empty()) return true;
  bool is_finite = true;
  bool has_shards = false;
  for (const auto& replica : replicas_) {
    for (const auto& tensor : replica.parameters) {
      has_shards = has_shards || is_shard(tensor);
      is_finite = is_finite && (!tensor.is_floating_point() || tensor.isfinite().all().item<bool>());
    }
    if (!has_shards) return is_finite;  // the others are equal
  }
  const auto own = torch::tensor({int64_t{is_finite}}, torch::kLong);
  const auto all = objects.strategy.extended().gather_tensors({own});
  return std::all_of(all.begin(), all.end(),
                     [](const auto& of_worker) { return of_worker[0].template item<int64_t>() != 0; });
}

StateValue AveragedWeights::save(const FitState::Objects& objects) {
  take_out_of_model(objects);
  if (replicas_.empty()) return {};
  return save_copies(objects.strategy, objects.modules, replicas_);
}

void AveragedWeights::load(const FitState::Objects& objects, const StateView& saved) {
  clear();
  if (!saved.is_none()) replicas_ = load_copies(objects.strategy, objects.modules, saved);
}

}  // namespace lockstep
