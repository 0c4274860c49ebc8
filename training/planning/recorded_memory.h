#pragma once

#include <vector>

#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// The training of a recorded model, the same in all layouts.
struct RecordedTraining {
  PlannedOptimizer optimizer = PlannedOptimizer::kAdam;
  std::vector<double> stage_costs{};  ///< of each block, see PlannedPipeline::costs
  std::vector<size_t> recomputed{};   ///< blocks, in layouts that recompute
  int64_t allocation_unit = 1;        ///< see TrainingLayout
};

/// Returns the memory of layouts by plan_memory_of_ranks(), which knows each allocation, for a LayoutPlanner
/// with the same cluster and training. Its layouts have the axes `data`, `shard` and `pipeline`.
///
/// Example:
///
///     const LayoutPlanner planner(planned_model(record), cluster, training,
///                                 recorded_memory(record, cluster, training));
LayoutMemoryFunction recorded_memory(RecordedStep record, const PlannedCluster& cluster,
                                     const PlannedTraining& training, const RecordedTraining& how = {});

}  // namespace lockstep
