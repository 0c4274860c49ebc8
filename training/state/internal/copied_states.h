#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <unordered_map>

namespace lockstep {

/// Copies of the states that an optimizer has for the tensors that it steps, by their keys in
/// Optimizer::state(). If its state is sharded, these tensors are slices of parameters, or shards.
using CopiedStates = std::unordered_map<void*, std::shared_ptr<const torch::optim::OptimizerParamState>>;

/// Copies all states to new memory on the same device. Throws InvalidArgument for an optimizer that
/// optimizer_state() does not support.
CopiedStates copied_states(const torch::optim::Optimizer& optimizer);

/// Replaces the optimizer's states by copies of these. Its options stay. The tensors must be those of the
/// time when the copies were made.
void put_back_states(torch::optim::Optimizer& optimizer, const CopiedStates& states);

}  // namespace lockstep
