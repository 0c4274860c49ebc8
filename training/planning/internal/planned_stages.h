#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/training/planning/internal/unit_memory.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// A stage of a recorded model: some consecutive calls, with the events of their forward and backward.
struct PlannedStage {
  size_t first_call = 0;
  size_t end_call = 0;
  EventRange forward{};
  EventRange backward{};
  std::vector<bool> has_parameter;  ///< for each parameter of the record
};

/// Cuts the calls of a record into as many stages as the schedule has, as a Pipeline cuts its blocks. What
/// runs between two calls belongs to the earlier one.
///
/// Throws InvalidArgument for blocks that do not begin with the record's calls in order, parameters outside
/// of blocks, and as a Pipeline does for costs and cuts.
std::vector<PlannedStage> planned_stages(const RecordedStep& record, const PlannedPipeline& pipeline,
                                         int num_stages);

}  // namespace lockstep
