#pragma once

#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep {

/// Returns whether it computes, rather than sends or receives.
bool is_computation(PipelineOp op);

/// Seconds that one micro-batch takes.
struct PipelineStageTimes {
  double forward = 0;
  double backward_inputs = 0;
  double backward_weights = 0;
};

struct PipelineTimes {
  std::vector<PipelineStageTimes> stages;
  double transfer = 0;  ///< From the end of a send to the moment at which the other rank can receive.
  int buffers = 2;      ///< As in PipelineCheckOptions.
};

/// Returns equal times for all stages, each half of backward taking half of it.
PipelineTimes uniform_pipeline_times(const PipelineSchedule& schedule, double forward, double backward);

struct TimedPipelineAction {
  PipelineAction action;
  double begin = 0;  ///< In seconds since the pipeline began.
  double end = 0;
};

/// The times at which each rank of a pipeline did its actions, predicted or measured.
struct PipelineTimeline {
  std::vector<std::vector<TimedPipelineAction>> ranks;

  /// Returns the seconds from the begin of the first action to the end of the last.
  double seconds() const;
  /// Returns the seconds that the rank computes: transfers, and waiting for them, do not count.
  double busy(int rank) const;
  /// Returns the share of its time that the rank waits, from its first computation to its last. It is free
  /// before and after: a rank that begins late also steps its optimizer late.
  double bubble(int rank) const;
  /// Returns the largest share of all ranks.
  double bubble() const;
};

/// Predicts when each rank does its actions. Sends and receives take no time of the ranks, but ranks wait in
/// them. Throws as check_pipeline_schedule(), and InvalidArgument unless there are times for each stage.
PipelineTimeline simulate_pipeline(const PipelineSchedule& schedule, const PipelineTimes& times);

}  // namespace lockstep
