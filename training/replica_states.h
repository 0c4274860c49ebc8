#pragma once

// Internal: only sources of its layer need it.

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/module_state.h"
#include "lockstep/strategies/strategy.h"
#include "lockstep/training/named_tensors.h"

namespace lockstep {

/// Each local replica's random generator, in replica order.
std::vector<at::Generator> replica_generators(Strategy& strategy);

/// The tensors of all replicas in replica order, on the CPU, from those of this process's; sizes may differ.
/// A collective of the workers, where there are several.
std::vector<torch::Tensor> gather_bytes(Strategy& strategy, const std::vector<torch::Tensor>& local);

/// All buffers of a module in the order of its state_dict(), one after the other as bytes, on the CPU.
torch::Tensor buffer_bytes(const torch::nn::Module& module);

/// Buffers by their names, each with a new first dimension of replicas, from buffer_bytes() of each replica
/// of modules like this one.
NamedTensors stack_buffers(const torch::nn::Module& module, const std::vector<torch::Tensor>& bytes);

}  // namespace lockstep
