#pragma once

#include <c10/core/DeviceType.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// Digests (see digest_of()) of the parameters and optimizer states of all replicas of all workers.
struct StateDigests {
  std::vector<std::string> names;          ///< names of the tensors, such as `parameter dense.weight`
  std::vector<torch::Tensor> of_replicas;  ///< one int64 [names, 2] per rank, on the CPU
  std::vector<std::string> axes;           ///< of each tensor: along which ranks have other parts, or empty
  /// For each of these axes and each rank, the first rank that has the same parts.
  std::map<std::string, std::vector<int>> parts;
  /// The type of each rank's device. Other types round otherwise, so only ranks of one type have equal bits.
  std::vector<c10::DeviceType> device_types;
};

/// Computes the digests. `modules` and `optimizers` have one entry per local replica; there may be no
/// optimizers. Each replica's thread reads its own state and waits for its device. A collective of the
/// workers.
StateDigests digest_states(Strategy& strategy, const std::vector<ModulePointer>& modules,
                           const std::vector<torch::optim::Optimizer*>& optimizers);

/// Throws InconsistentReplicas naming the replica that differs from most others on devices of its type and
/// its first tensor that differs. `step` appears in the message.
void check_equal(const StateDigests& states, int64_t step);

/// Throws NotFinite naming the first replica that has trained values that are not finite, and the first such
/// tensor. `epoch` and `step` (within the epoch) appear in the message.
void check_finite(const StateDigests& states, int64_t epoch, int64_t step);

}  // namespace lockstep
