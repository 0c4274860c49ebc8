#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns the memory of the models, their gradients, the optimizers' state and the strategy's buckets, over
/// all local replicas; `optimizers` has one for each. The state of optimizers that optimizer_state() does not
/// support is absent, and so are activations and the peak. Call it between steps, when gradients are there.
/// Waits for no device.
///
/// Example:
///
///     const auto memory = memory_by_part(strategy, module_pointers(model.local_values()), {&optimizer[0]});
///     std::cout << memory.parameters + memory.gradients + memory.communication_buckets << " bytes\n";
MemoryRecord memory_by_part(Strategy& strategy, const std::vector<ModulePointer>& modules,
                            const std::vector<torch::optim::Optimizer*>& optimizers);

/// Sets the peak of `memory` to the most bytes that tensors on the GPUs of `strategy` have had since the
/// process began, or if it has none, to the peak resident set size of this process.
void add_peak(MemoryRecord& memory, const Strategy& strategy);

}  // namespace lockstep
