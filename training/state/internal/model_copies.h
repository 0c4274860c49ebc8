#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

/// Copies of a replica's parameters and buffers, on its device, in the order in which its module lists them.
/// Those of tied weights are one tensor, too. Copies of shards are shards of the same parameters.
struct ModelCopy {
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> buffers;
};

/// Copies the modules of all local replicas.
std::vector<ModelCopy> copies_of_model(Strategy& strategy, const std::vector<ModulePointer>& modules);

/// Copies the values back into the modules.
void put_back_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                     const std::vector<ModelCopy>& copies);

/// Returns the copies to save with a training: parameters once, with stand-ins for those that are sharded
/// (see divided_tensor()), and buffers of each replica. A collective.
StateValue::Dict save_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                             const std::vector<ModelCopy>& copies);

/// Returns copies with the values that save_copies() returned. With another number of replicas, the buffers
/// are combined (see BufferAggregation). Throws CheckpointError naming a tensor that does not fit the model.
std::vector<ModelCopy> load_copies(Strategy& strategy, const std::vector<ModulePointer>& modules,
                                   const StateView& saved);

}  // namespace lockstep
