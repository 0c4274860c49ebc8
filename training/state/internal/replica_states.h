#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// Each local replica's random generator, in replica order.
std::vector<at::Generator> replica_generators(Strategy& strategy);

/// The tensors of all replicas, as many of each, in replica order and on the CPU, from those of this
/// process's. A collective of the workers, where there are several. Those of one process share their memory.
std::vector<torch::Tensor> gather_of_replicas(Strategy& strategy, const std::vector<torch::Tensor>& local);

/// Buffers by their names, in the order of the state_dict(), each with a new first dimension of replicas, on
/// the CPU. `modules` are those of the local replicas. A collective likewise.
NamedTensors gather_buffers(Strategy& strategy, const std::vector<ModulePointer>& modules);

}  // namespace lockstep
