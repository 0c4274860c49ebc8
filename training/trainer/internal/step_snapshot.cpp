#include "lockstep/training/trainer/internal/step_snapshot.h"

#include <torch/utils.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/training/state/optimizer_state.h"

namespace lockstep {
namespace {

/// Copies to new memory on the same device.
StateValue cloned(const StateValue& state) {
  return map_tensors<torch::Tensor>(state, [](const torch::Tensor& tensor) { return tensor.clone(); });
}

/// Rates that a rollback leaves as they are: a schedule sets them, not a step.
std::vector<double> learning_rates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

}  // namespace

StepSnapshot::StepSnapshot(const FitState::Objects& objects, const std::vector<StepMeters*>& meters) {
  if (objects.strategy.optimizer_group(*objects.optimizers.front())->is_divided()) {
    throw InvalidArgument(
        "[fit] expected an optimizer whose state is not sharded to take steps back, as NanGuard's roll_back "
        "and LearningRateFinder do, but got a sharded one: stop at a number that is not finite, or skip the "
        "step");
  }
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
                    replica.optimizer = cloned(optimizer_state(*objects.optimizers[at]));
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
    auto& optimizer = *objects.optimizers[at];
    const auto rates = learning_rates(optimizer);
    load_optimizer_state(optimizer, cloned(replica.optimizer));
    auto rate = rates.begin();
    for (auto& group : optimizer.param_groups()) group.options().set_lr(*rate++);
    if (objects.scalers[at]->is_enabled()) objects.scalers[at]->load_state(replica.scaler);
    put_back_meters(*meters[at], replica.meters, context.device());
  });
}

}  // namespace lockstep
