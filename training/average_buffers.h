#pragma once

#include <vector>

#include "lockstep/runtime/module_state.h"
#include "lockstep/strategies/strategy.h"
#include "lockstep/training/named_tensors.h"

namespace lockstep {

/// Writes the mean of every floating-point buffer over all replicas of all workers into `replicas`, one
/// module for each local replica; other buffers come from replica 0. A collective of the workers, where there
/// are several: as Mirrored::eval() does in one process.
void average_buffers(Strategy& strategy, const std::vector<ModulePointer>& replicas);

/// The model as it is evaluated: replica 0's parameters, and these means for buffers, by the names of
/// state_dict(). Changes no replica. A collective as above; buffers lie on the CPU.
NamedTensors averaged_state_dict(Strategy& strategy, const std::vector<ModulePointer>& replicas);

}  // namespace lockstep
