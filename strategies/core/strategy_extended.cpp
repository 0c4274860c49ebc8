#include "lockstep/strategies/core/strategy_extended.h"

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/internal/shared_memory.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

Devices parse_destinations(const std::vector<std::string>& names) {
  Devices devices;
  for (const auto& name : names) devices.push_back(parse_device(name));
  return devices;
}

bool has_other_workers(const Strategy& strategy) {
  return strategy.num_local_replicas() < strategy.num_ranks();
}

/// Returns whether a sum of the local values is the sum over all replicas.
bool holds_replicas(const Strategy& strategy) {
  return !has_other_workers(strategy) && strategy.num_ranks() == strategy.num_replicas_in_sync();
}

bool is_permutation(const std::vector<size_t>& order, size_t size) {
  std::vector<char> seen(size, 0);
  for (const size_t index : order) {
    if (index >= size || seen[index] != 0) return false;
    seen[index] = 1;
  }
  return order.size() == size;
}

}  // namespace

std::vector<std::string> StrategyExtended::worker_devices() const {
  std::vector<std::string> names;
  for (const auto& device : strategy_.devices()) names.push_back(device.str());
  return names;
}

std::vector<torch::Tensor> StrategyExtended::reduce_to(ReduceOp op, const PerReplica<torch::Tensor>& value,
                                                       const std::vector<std::string>& destinations) const {
  const Devices devices = parse_destinations(destinations);
  const auto& ops = strategy_.cross_device_ops();
  if (holds_replicas(strategy_)) return ops.reduce(op, value.local_values(), devices);
  if (devices.empty()) return ops.broadcast({}, devices);  // throws
  return ops.broadcast(strategy_.reduce(op, value), devices);
}

std::vector<std::vector<torch::Tensor>> StrategyExtended::batch_reduce_to(
    ReduceOp op, const std::vector<PerReplica<torch::Tensor>>& values,
    const std::vector<std::string>& destinations) const {
  std::vector<std::vector<torch::Tensor>> local;
  if (!holds_replicas(strategy_)) {
    for (const auto& value : values) local.push_back(reduce_to(op, value, destinations));
    return local;
  }
  for (const auto& value : values) local.push_back(value.local_values());
  return strategy_.cross_device_ops().batch_reduce(op, local, parse_destinations(destinations));
}

Mirrored<torch::Tensor> StrategyExtended::broadcast_to(const torch::Tensor& value) const {
  if (has_other_workers(strategy_)) return strategy_.scope([&](ReplicaContext&) { return value; });
  auto copies = strategy_.cross_device_ops().broadcast(value, strategy_.devices());
  // The first copy may be the given tensor itself, but the strategy must own a mirrored value.
  for (auto& copy : copies) {
    if (share_memory(copy, value)) copy = copy.clone();
  }
  return Mirrored<torch::Tensor>(std::move(copies), std::make_shared<const Devices>(strategy_.devices()));
}

std::vector<std::vector<torch::Tensor>> StrategyExtended::gather_tensors(
    const std::vector<torch::Tensor>& own) const {
  if (const auto& workers = strategy_.core_->config.workers) return workers->gather_tensors(own);
  std::vector<torch::Tensor> here;
  for (const auto& tensor : own) here.push_back(tensor.detach().cpu());
  return {here};
}

void StrategyExtended::broadcast_from_chief_(const std::vector<torch::Tensor>& tensors) const {
  if (const auto& workers = strategy_.core_->config.workers) workers->broadcast_(tensors);
}

std::vector<double> StrategyExtended::seconds_waited() const {
  std::vector<double> seconds;
  for (const auto& state : strategy_.core_->states) seconds.push_back(state.waits.seconds());
  return seconds;
}

std::vector<int64_t> StrategyExtended::gradient_order(const torch::optim::Optimizer& optimizer) const {
  const auto group = strategy_.core_->find_optimizer(optimizer);
  const auto* reducer = group ? group->reducer(0) : nullptr;
  if (reducer == nullptr) return {};
  const auto order = reducer->agreed_order();
  return {order.begin(), order.end()};
}

void StrategyExtended::set_gradient_order(const torch::optim::Optimizer& optimizer,
                                          const std::vector<int64_t>& order) const {
  const auto group = strategy_.core_->find_optimizer(optimizer);
  const std::vector<size_t> indices(order.begin(), order.end());
  const size_t num_parameters = parameters_of(optimizer).size();
  if (!is_permutation(indices, num_parameters)) {
    throw InvalidArgument("[set_gradient_order] expected each index of " + std::to_string(num_parameters) +
                          " parameters once, but got " + std::to_string(order.size()) + " other numbers");
  }
  for (int replica = 0; group && replica < strategy_.num_local_replicas(); ++replica)
    if (auto* reducer = group->reducer(replica)) reducer->set_agreed_order(indices);
}

std::vector<GradientKind> StrategyExtended::gradient_kinds(const torch::optim::Optimizer& optimizer) const {
  const auto group = strategy_.core_->find_optimizer(optimizer);
  const auto* reducer = group ? group->reducer(0) : nullptr;
  return reducer == nullptr ? std::vector<GradientKind>() : reducer->agreed_kinds();
}

void StrategyExtended::set_gradient_kinds(const torch::optim::Optimizer& optimizer,
                                          const std::vector<GradientKind>& kinds) const {
  const auto group = strategy_.core_->find_optimizer(optimizer);
  const size_t num_parameters = parameters_of(optimizer).size();
  if (kinds.size() != num_parameters) {
    throw InvalidArgument("[set_gradient_kinds] expected a kind for each of " +
                          std::to_string(num_parameters) + " parameters, but got " +
                          std::to_string(kinds.size()));
  }
  for (int replica = 0; group && replica < strategy_.num_local_replicas(); ++replica)
    if (auto* reducer = group->reducer(replica)) reducer->set_agreed_kinds(kinds);
}

std::vector<const ShardedParameters*> StrategyExtended::optimizer_parts(
    const torch::optim::Optimizer& optimizer) const {
  std::vector<const ShardedParameters*> parts;
  const auto group = strategy_.core_->find_optimizer(optimizer);
  if (!group || group->sharded(0) == nullptr) return parts;
  for (int replica = 0; replica < strategy_.num_local_replicas(); ++replica)
    parts.push_back(group->sharded(replica));
  return parts;
}

std::vector<OptimizerOnReplica> StrategyExtended::optimizers_on_replicas(
    const torch::optim::Optimizer& optimizer) const {
  std::vector<OptimizerOnReplica> optimizers;
  const auto group = strategy_.core_->find_optimizer(optimizer);
  for (int replica = 0; group && replica < strategy_.num_local_replicas(); ++replica) {
    optimizers.push_back({.sharding_stage = group->sharding_stage(),
                          .num_parts = group->num_parts(),
                          .reducer = group->reducer(replica),
                          .part = group->sharded(replica)});
  }
  return optimizers;
}

std::vector<torch::Tensor> StrategyExtended::gradient_buckets(
    const torch::optim::Optimizer& optimizer) const {
  std::vector<torch::Tensor> tensors;
  const auto group = strategy_.core_->find_optimizer(optimizer);
  for (int replica = 0; group && replica < strategy_.num_local_replicas(); ++replica) {
    if (const auto* reducer = group->reducer(replica)) {
      const auto own = reducer->bucket_tensors();
      tensors.insert(tensors.end(), own.begin(), own.end());
    }
  }
  return tensors;
}

}  // namespace lockstep
