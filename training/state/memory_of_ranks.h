#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/rank_memory.h"
#include "lockstep/training/state/memory_formula.h"

namespace lockstep {

/// Returns the memory of each local replica for its model, by part, measured and as predict_memory() predicts
/// it; `modules` and `optimizers` have one for each. Memory is counted with its padding, once if several
/// tensors share it. The most of the buckets and of the gathered units are those since the optimizer was
/// made, and since GatheredUnits::restart().
///
/// There is no prediction for an optimizer that Strategy::scope() did not make, nor for one whose parameters
/// are on parameter servers. Call it between runs, after a step. Waits for no device.
///
/// Example:
///
///     for (const auto& rank : memory_of_ranks(strategy, module_pointers(model.local_values()), optimizers))
///       std::cout << rank.measured.sum() << " bytes, predicted " << rank.predicted->sum() << "\n";
std::vector<RankMemory> memory_of_ranks(Strategy& strategy, const std::vector<ModulePointer>& modules,
                                        const std::vector<torch::optim::Optimizer*>& optimizers);

/// Returns the layout that memory_of_ranks() predicts from: that of one local replica's model and optimizer.
MemoryLayout memory_layout(Strategy& strategy, const torch::nn::Module& module,
                           const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
