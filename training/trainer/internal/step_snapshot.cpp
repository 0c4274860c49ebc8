#include "lockstep/training/trainer/internal/step_snapshot.h"

#include <torch/utils.h>

#include <utility>

namespace lockstep {

StepSnapshot::StepSnapshot(const FitState::Objects& objects, const std::vector<StepMeters*>& meters) {
  replicas_ = objects.strategy
                  .run([&](ReplicaContext& context) {
                    const torch::NoGradGuard no_grad;
                    const auto at = static_cast<size_t>(context.local_replica_id());
                    OfReplica replica;
                    const auto add = [&](const torch::Tensor& tensor) {
                      replica.module_tensors.emplace_back(tensor, tensor.detach().clone());
                    };
                    for (const auto& tensor : objects.modules[at]->parameters()) add(tensor);
                    for (const auto& tensor : objects.modules[at]->buffers()) add(tensor);
                    replica.optimizer = copied_states(*objects.optimizers[at]);
                    if (objects.scalers[at]->is_enabled()) replica.scaler = objects.scalers[at]->state();
                    replica.meters = copy_meters(*meters[at]);
                    return replica;
                  })
                  .local_values();
}

void StepSnapshot::restore(const FitState::Objects& objects, const std::vector<StepMeters*>& meters) const {
  objects.strategy.run([&](ReplicaContext& context) {
    const torch::NoGradGuard no_grad;
    const auto at = static_cast<size_t>(context.local_replica_id());
    const OfReplica& replica = replicas_[at];
    for (const auto& [tensor, copy] : replica.module_tensors) tensor.detach().copy_(copy);
    put_back_states(*objects.optimizers[at], replica.optimizer);
    if (objects.scalers[at]->is_enabled()) objects.scalers[at]->load_state(replica.scaler);
    put_back_meters(*meters[at], replica.meters, context.device());
  });
}

}  // namespace lockstep
