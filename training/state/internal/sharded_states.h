#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Returns the tensors of the module that `replicas` hold, one for each local replica, with whole parameters
/// instead of shards. `tensors` has those of the first local replica. If there are shards, it is a
/// collective, and whole parameters are on the CPU. Workers for which `is_wanted` is false get nothing.
NamedTensors whole_tensors(Strategy& strategy, const std::vector<ModulePointer>& replicas,
                           NamedTensors tensors, bool is_wanted);

/// Returns optimizer_state() of the optimizer that `replicas` hold, one for each local replica. If its state
/// is sharded, puts it together from all replicas' parts: then it is a collective, and tensors are on the
/// CPU. Workers for which `is_wanted` is false get an empty state.
StateValue::Dict whole_optimizer_state(Strategy& strategy,
                                       const std::vector<torch::optim::Optimizer*>& replicas, bool is_wanted);

/// Throws InvalidArgument, which begins with `who`, if parameters of the module are shards.
void refuse_shards(const std::string& who, const torch::nn::Module& module);

/// Returns the elements of a shard, of the values of the whole parameter.
torch::Tensor shard_of_values(const torch::Tensor& values, const ShardedParameter& shard);

// Parts of optimizer_state(), in optimizer_state.cpp.

/// Returns the optimizer's state of a tensor that it steps, by name, as optimizer_state() has it for a
/// parameter; empty if there is none. `group` is the index of the tensor's group.
StateValue::Dict state_of_tensor(const torch::optim::Optimizer& optimizer, size_t group,
                                 const torch::Tensor& tensor);
/// Returns optimizer_state() with these states of parameters, by their number among all.
StateValue::Dict optimizer_state_with(const torch::optim::Optimizer& optimizer,
                                      const std::map<int64_t, StateValue::Dict>& states);

}  // namespace lockstep
