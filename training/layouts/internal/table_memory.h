#pragma once

#include <vector>

#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// Returns the memory of a replica, and with parameter servers that of a server behind it, of a model with
/// tables. `network` is the replica's memory without them, when its network needs most.
std::vector<LayoutMemory> predict_table_memory(const PlannedModel& model, const PlannedTraining& training,
                                               const PlannedLayout& layout, const LayoutMemory& network);

}  // namespace lockstep
