#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>

#include "lockstep/runtime/gradients/sharded_parameters.h"
#include "lockstep/training/state/internal/distinct_memory.h"

namespace lockstep {

/// Returns the bytes of the optimizer's state, counters of steps aside, for whole parameters, for shards, and
/// for the slices of `part`, which may be null. Absent if optimizer_state() does not support the optimizer.
std::optional<int64_t> state_bytes(const torch::optim::Optimizer& optimizer, const ShardedParameters* part,
                                   DistinctMemory& memory);

/// Returns how many tensors of a parameter's size the optimizer keeps for each parameter of the group; absent
/// for optimizers that it does not know.
std::optional<int64_t> states_of_group(const torch::optim::OptimizerParamGroup& group);

}  // namespace lockstep
