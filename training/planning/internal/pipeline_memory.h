#pragma once

#include <vector>

#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Returns the memory of each rank of a layout with stages. Throws as planned_stages() and
/// make_pipeline_schedule().
std::vector<MemoryPlan> memory_of_pipeline(const RecordedStep& record, const TrainingLayout& layout);

}  // namespace lockstep
