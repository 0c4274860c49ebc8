#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Returns optimizer_state() of the optimizer that `replicas` hold, one for each local replica. If its state
/// is sharded, puts it together from all replicas' parts: then it is a collective, and tensors are on the
/// CPU. Workers for which `is_wanted` is false get an empty state.
StateValue::Dict whole_optimizer_state(Strategy& strategy,
                                       const std::vector<torch::optim::Optimizer*>& replicas, bool is_wanted);

// Parts of optimizer_state(), in optimizer_state.cpp.

/// Returns the optimizer's state of a tensor that it steps, by name, as optimizer_state() has it for a
/// parameter; empty if there is none. `group` is the index of the tensor's group.
StateValue::Dict state_of_tensor(const torch::optim::Optimizer& optimizer, size_t group,
                                 const torch::Tensor& tensor);
/// Returns optimizer_state() with these states of parameters, by their number among all.
StateValue::Dict optimizer_state_with(const torch::optim::Optimizer& optimizer,
                                      const std::map<int64_t, StateValue::Dict>& states);

}  // namespace lockstep
