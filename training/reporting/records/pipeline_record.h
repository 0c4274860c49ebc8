#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/training/reporting/records/metrics_log.h"

namespace lockstep {

/// When a rank of a pipeline did an action, and when it should have done it. In seconds since the first
/// computation of any rank began.
struct PipelineActionRecord {
  int64_t rank = 0;
  PipelineAction action = {};
  double planned_begin = 0;
  double planned_end = 0;
  double begin = 0;
  double end = 0;

  bool operator==(const PipelineActionRecord&) const = default;
};

/// One step of a training with a pipeline, as planned and as measured. pipeline_record() makes it.
struct PipelineRecord {
  int64_t step = 0;      ///< from 1, over all epochs
  std::string schedule;  ///< its name
  int64_t ranks = 0;
  int64_t stages = 0;
  int64_t micro_batches = 0;
  int64_t num_actions = 0;  ///< of all ranks
  /// From the begin of the first computation to the end of the last.
  double planned_seconds = 0;
  double seconds = 0;
  /// The largest share of its time that a rank waits, as in PipelineTimeline::bubble().
  double planned_bubble = 0;
  double bubble = 0;
  std::vector<PipelineActionRecord> actions = {};  ///< rank 0's in order, then rank 1's, and so on
};

/// Returns forward, backward, backward_inputs, backward_weights, send_activation, receive_activation,
/// send_gradient or receive_gradient.
std::string pipeline_op_name(PipelineOp op);

/// Returns whether a rank computes in it: it does not in sends and receives.
bool is_pipeline_computation(PipelineOp op);

/// Return the rows of metrics.jsonl: one of kind `pipeline`, without the actions, and one of kind
/// `pipeline_action` for each of them.
MetricRow metric_row(const PipelineRecord& record);
MetricRow metric_row(const PipelineActionRecord& action);

/// Reads a row of kind `pipeline`, which anybody may have written: values that are no counts, shares or
/// durations count as absent.
PipelineRecord pipeline_record_of(const MetricRow& row);
/// Reads a row of kind `pipeline_action`. Returns nothing if a value is missing, or is no such value.
std::optional<PipelineActionRecord> pipeline_action_of(const MetricRow& row);

}  // namespace lockstep
