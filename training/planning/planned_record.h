#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/training/layouts/planned_model.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Returns a recorded model as parts for LayoutPlanner: each block is a part, and `recomputed` has the
/// numbers of those that layouts with recomputation compute again. What the step does before the first block
/// is in the first part, and everything else outside of blocks, such as the loss, in the last one. Nothing is
/// cut along axes "tensor", "context" and "expert".
///
/// A part's memory is what was live while it ran, so that plans need a few percent more than plan_memory(),
/// which knows each allocation. Throws InvalidArgument for a record without blocks, with parameters that are
/// not trained, and for blocks that are not in the record.
///
/// Example:
///
///     const LayoutPlanner planner(planned_model(record, record.blocks_named("features.")), cluster,
///                                 {.global_batch = 256});
PlannedModel planned_model(const RecordedStep& record, const std::vector<size_t>& recomputed = {});

}  // namespace lockstep
