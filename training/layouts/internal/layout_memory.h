#pragma once

#include <vector>

#include "lockstep/training/layouts/internal/stage_ranges.h"
#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// Returns the examples of a replica in a micro-batch: those of the largest one.
double examples_of_micro_batch(const PlannedTraining& training, const PlannedLayout& layout);

/// See LayoutPlanner::memory_of_ranks().
std::vector<LayoutMemory> predict_layout_memory(const PlannedModel& model, const PlannedCluster& cluster,
                                                const PlannedTraining& training, const PlannedLayout& layout,
                                                StagePlans& plans);

}  // namespace lockstep
