#pragma once

#include <cstdint>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/reporting/records/pipeline_record.h"

namespace lockstep {

/// Returns the medians over the micro-batches of the times that each stage took; 0 for computations that the
/// schedule does not have. If a stage has whole backwards only, each half takes half of their median. A mean
/// would make a stage slow for all micro-batches because the machine was busy during one. Throws as
/// pipeline_record().
PipelineTimes median_pipeline_times(const PipelineSchedule& schedule, const PipelineTimeline& measured);

struct PipelineRecordOptions {
  int64_t step = 0;     ///< that was measured, from 1
  double transfer = 0;  ///< As in PipelineTimes.
  int buffers = 2;      ///< As in PipelineTimes.
};

/// Returns the record of a step for a report: `measured`, and the plan that simulate_pipeline() makes of its
/// median_pipeline_times(). Both begin with the first computation of any rank.
///
/// `measured` has the actions of all ranks by one clock, as PipelineStages::gather_times() returns them.
/// Throws InvalidArgument, naming the rank, if they are not the actions of the schedule in its order, or if a
/// time is not finite or an action ends before it begins; and as simulate_pipeline() does.
///
/// Example:
///
///     const PipelineTimeline measured = stages.gather_times();  // on all ranks of the axis
///     if (record) record->set_pipeline(pipeline_record(stages.schedule(), measured, {.step = 3}));
PipelineRecord pipeline_record(const PipelineSchedule& schedule, const PipelineTimeline& measured,
                               const PipelineRecordOptions& options = {});

}  // namespace lockstep
