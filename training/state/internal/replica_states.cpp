#include "lockstep/training/state/internal/replica_states.h"

#include <set>
#include <utility>

#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

/// Returns the buffers of the state_dict, in its order.
NamedTensors buffers_in_order(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_buffers()) names.insert(item.key());
  NamedTensors buffers;
  for (auto& [name, tensor] : state_dict(module))
    if (names.contains(name)) buffers.emplace_back(name, tensor);
  return buffers;
}

}  // namespace

std::vector<at::Generator> replica_generators(Strategy& strategy) {
  return strategy.run([](ReplicaContext& replica) { return replica.generator(); }).local_values();
}

std::vector<at::Generator> rank_generators(Strategy& strategy) {
  return strategy.run([](ReplicaContext& replica) { return replica.rank_generator(); }).local_values();
}

std::vector<torch::Tensor> gather_of_replicas(Strategy& strategy, const std::vector<torch::Tensor>& local) {
  std::vector<torch::Tensor> all;
  for (const auto& of_worker : strategy.extended().gather_tensors(local))
    all.insert(all.end(), of_worker.begin(), of_worker.end());
  return all;
}

NamedTensors stack_of_replicas(Strategy& strategy, const std::vector<std::string>& names,
                               const std::vector<torch::Tensor>& local) {
  const auto all = gather_of_replicas(strategy, local);
  NamedTensors stacked;
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<torch::Tensor> of_replicas;
    for (size_t at = i; at < all.size(); at += names.size()) of_replicas.push_back(all[at]);
    stacked.emplace_back(names[i], torch::stack(of_replicas));
  }
  return stacked;
}

NamedTensors gather_buffers(Strategy& strategy, const std::vector<ModulePointer>& modules) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> local;
  for (size_t at = 0; at < modules.size(); ++at) {
    names.clear();
    for (const auto& [name, buffer] : buffers_in_order(*modules[at])) {
      names.push_back(name);
      if (strategy.is_first_of_replica(at)) local.push_back(buffer);
    }
  }
  return stack_of_replicas(strategy, names, local);
}

}  // namespace lockstep
