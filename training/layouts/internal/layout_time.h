#pragma once

#include "lockstep/training/layouts/internal/stage_ranges.h"
#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// See LayoutPlanner::time(); and if `is_bound`, LayoutPlanner::least_seconds(): the bubble is then the least
/// that any schedule could have.
LayoutTime predict_layout_time(const PlannedModel& model, const PlannedCluster& cluster,
                               const PlannedTraining& training, const PlannedLayout& layout,
                               StagePlans& plans, bool is_bound);

}  // namespace lockstep
