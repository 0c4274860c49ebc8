#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// The parameters and optimizer states of all replicas of all workers, as digest_of() has each tensor.
struct StateDigests {
  std::vector<std::string> names;          ///< of the tensors, such as `parameter dense.weight`
  std::vector<torch::Tensor> of_replicas;  ///< int64 [names, 2] of each, on the CPU
};

/// `modules` and `optimizers`, which may be none, are one each for every local replica. Each replica's thread
/// reads its own, and waits for its device. A collective of the workers.
StateDigests digest_states(Strategy& strategy, const std::vector<ModulePointer>& modules,
                           const std::vector<torch::optim::Optimizer*>& optimizers);

/// Throws InconsistentReplicas naming the replica that differs from most others and its first tensor that
/// does. `step` is what the message calls this moment.
void check_equal(const StateDigests& states, int64_t step);

/// Throws NotFinite naming the first replica that has a trained number which is not finite, and its first
/// tensor with one. Epoch and step of the epoch are what the message calls this moment.
void check_finite(const StateDigests& states, int64_t epoch, int64_t step);

}  // namespace lockstep
