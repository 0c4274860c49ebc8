#include "lockstep/training/average_buffers.h"

#include <torch/utils.h>

#include <map>
#include <string>

#include "lockstep/training/replica_states.h"
#include "lockstep/training/state_dict.h"

namespace lockstep {
namespace {

std::map<std::string, torch::Tensor> mean_buffers(Strategy& strategy,
                                                  const std::vector<ModulePointer>& replicas) {
  std::vector<torch::Tensor> bytes;
  for (const auto& module : replicas) bytes.push_back(buffer_bytes(*module));
  std::map<std::string, torch::Tensor> means;
  for (const auto& [name, stacked] : stack_buffers(*replicas.front(), gather_bytes(strategy, bytes)))
    means.emplace(name, mean_of_replicas(stacked));
  return means;
}

}  // namespace

void average_buffers(Strategy& strategy, const std::vector<ModulePointer>& replicas) {
  if (strategy.num_local_replicas() == strategy.num_replicas_in_sync()) {
    average_buffers(replicas);  // without a way over the host
    return;
  }
  if (replicas.front()->buffers().empty()) return;  // on every worker
  const torch::NoGradGuard no_grad;
  const auto means = mean_buffers(strategy, replicas);
  for (const auto& module : replicas) {
    for (auto& item : module->named_buffers()) {
      const auto mean = means.find(item.key());
      if (mean != means.end()) item.value().copy_(mean->second);
    }
  }
}

NamedTensors averaged_state_dict(Strategy& strategy, const std::vector<ModulePointer>& replicas) {
  const auto means = mean_buffers(strategy, replicas);
  NamedTensors tensors = state_dict(*replicas.front());
  for (auto& [name, tensor] : tensors) {
    if (const auto mean = means.find(name); mean != means.end()) tensor = mean->second;
  }
  return tensors;
}

}  // namespace lockstep
