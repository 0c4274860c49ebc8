#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/training/layouts/planned_layout.h"
#include "lockstep/training/layouts/planned_model.h"

namespace lockstep {

/// Consecutive parts of a model: a stage.
struct StageRange {
  size_t begin = 0;
  size_t end = 0;
  int stage = 0;

  size_t size() const { return end - begin; }
};

/// A moment of a rank: for each of its stages, the micro-batches whose activations are there,
/// and then for each of them those that are between the halves of their backward.
using AliveStages = std::vector<int64_t>;

/// Cuts models into stages, and knows what schedules keep. Remembers results, as layouts share them.
class StagePlans {
 public:
  /// Returns the stages of each rank along the axis "pipeline", cut as PipelineStages cuts them: the largest
  /// cost is as small as possible.
  const std::vector<std::vector<StageRange>>& stages(const PlannedModel& model, const PlannedLayout& layout);
  /// Returns the most that the schedule keeps on a rank: of several states, none of which contains another.
  const std::vector<AliveStages>& alive(const PlannedLayout& layout, size_t rank);
  /// Returns the schedule for as many micro-batches.
  const PipelineSchedule& schedule(const PlannedLayout& layout, int64_t micro_batches);

 private:
  using Cut = std::tuple<int64_t, int64_t, int64_t, int64_t, bool>;  // pipeline, stages, tensor, expert, zb-v
  using Schedule = std::tuple<std::string, int64_t, int64_t, int64_t>;  // ranks, micro-batches, stages

  std::map<Cut, std::vector<std::vector<StageRange>>> stages_;
  std::map<Schedule, std::vector<std::vector<AliveStages>>> alive_;
  std::map<Schedule, PipelineSchedule> schedules_;
};

/// Returns the elements of a part's parameters on a rank, without and with its experts.
double dense_elements(const PlannedPart& part, const PlannedLayout& layout);
double elements_on_rank(const PlannedPart& part, const PlannedLayout& layout);

/// Returns the micro-batches from which on a schedule repeats itself: more of them take as much longer as the
/// busiest rank, and keep no more activations (but for gpipe).
int64_t steady_micro_batches(const PlannedLayout& layout);

}  // namespace lockstep
