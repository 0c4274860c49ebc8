#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

/// Returns the tensors of the first local replica, with stand-ins for whole parameters in the place of shards
/// (see divided_tensor()). `replicas` has the same tensors of each local replica. If there are no shards,
/// returns the tensors themselves.
NamedTensors divided_tensors(const Strategy& strategy, const std::vector<NamedTensors>& replicas);

/// Returns optimizer_state() of the optimizer that `replicas` hold, one for each local replica. If its state
/// is sharded, it is a collective, and stand-ins take the place of tensors of which the replicas hold parts.
StateValue::Dict divided_optimizer_state(Strategy& strategy,
                                         const std::vector<torch::optim::Optimizer*>& replicas);

/// Returns the saved values of a parameter, in the dtype and on the device of `parameter`, which may be a
/// shard of it. Throws CheckpointError for another shape.
torch::Tensor values_like(const StateView& saved, const torch::Tensor& parameter);

// Parts of optimizer_state(), in optimizer_state.cpp.

/// Returns the optimizer's state of a tensor that it steps, by name, as optimizer_state() has it for a
/// parameter; empty if there is none. `group` is the index of the tensor's group.
StateValue::Dict state_of_tensor(const torch::optim::Optimizer& optimizer, size_t group,
                                 const torch::Tensor& tensor);
/// Returns optimizer_state() with these states of parameters, by their number among all.
StateValue::Dict optimizer_state_with(const torch::optim::Optimizer& optimizer,
                                      const std::map<int64_t, StateValue::Dict>& states);

}  // namespace lockstep
