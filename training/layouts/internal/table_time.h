#pragma once

#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// Adds the time of tables to that of the network: looking rows up, their gradients, and the optimizer's step
/// of them; and the way of the rows, to all replicas or to parameter servers and back. Servers also carry the
/// network's parameters and gradients, which then are not summed.
void add_table_time(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
                    const PlannedLayout& layout, LayoutTime& time);

}  // namespace lockstep
