#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"

namespace lockstep {

/// Returns the random generator of each local rank's replica, in the order of ranks.
std::vector<at::Generator> replica_generators(Strategy& strategy);
/// Returns each local rank's own random generator; see RankRandom.
std::vector<at::Generator> rank_generators(Strategy& strategy);

/// Returns the tensors of all ranks on the CPU, in their order; `local` holds those of this process. A
/// collective if there are several workers. With one process, CPU tensors share memory with `local`.
std::vector<torch::Tensor> gather_of_replicas(Strategy& strategy, const std::vector<torch::Tensor>& local);

/// Returns each of the named tensors with a new first dimension of all replicas, on the CPU. `local` holds
/// the tensors of this process's replicas, one replica after another, each in the order of `names`. A
/// collective if there are several workers.
NamedTensors stack_of_replicas(Strategy& strategy, const std::vector<std::string>& names,
                               const std::vector<torch::Tensor>& local);

/// Returns the buffers by name, in the order of the state_dict(), on the CPU, each with a new first dimension
/// of replicas. `modules` are those of the local ranks, of which each replica's first counts. A collective if
/// there are several workers.
NamedTensors gather_buffers(Strategy& strategy, const std::vector<ModulePointer>& modules);

}  // namespace lockstep
