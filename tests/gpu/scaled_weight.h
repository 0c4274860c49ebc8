#pragma once

#include <torch/types.h>

#include <limits>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {

/// Four ones on each replica, which FusedAdam trains with a GradScaler whose scale is 4 at first.
struct ScaledWeight {
  explicit ScaledWeight(MirroredStrategy& of)
      : strategy(of),
        weight(strategy.scope([](ReplicaContext&) { return torch::ones({4}).requires_grad_(); })),
        optimizer(strategy.scope([&](ReplicaContext& replica) {
          return FusedAdam(std::vector<torch::Tensor>{weight[replica]}, 0.1);
        })),
        scaler(strategy.scope(
            [](ReplicaContext& replica) { return GradScaler(replica.device(), {.init_scale = 4}); })) {}

  /// Takes a step in which the loss of replica `failing` is infinite; -1: of none.
  void step(int64_t failing) {
    strategy.run(
        [](ReplicaContext& replica, torch::Tensor& own, FusedAdam& adam, GradScaler& scale,
           const int64_t& failing) {
          adam.zero_grad();
          auto loss = own.sum();
          if (replica.replica_id() == failing) loss = loss * std::numeric_limits<double>::infinity();
          scale.scale(loss).backward();
          replica.apply_gradients(adam, {.scaler = &scale});
          scale.update();
        },
        weight, optimizer, scaler, failing);
  }

  MirroredStrategy& strategy;
  Mirrored<torch::Tensor> weight;
  Mirrored<FusedAdam> optimizer;
  Mirrored<GradScaler> scaler;
};

}  // namespace lockstep
