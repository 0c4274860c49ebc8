#include "lockstep/training/reporting/records/measured_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

std::string action_text(const std::vector<PipelineAction>& actions, size_t place) {
  return place < actions.size() ? describe(actions[place]) : "nothing more";
}

void check_rank(const PipelineSchedule& schedule, size_t rank,
                const std::vector<TimedPipelineAction>& measured) {
  std::vector<PipelineAction> done;
  done.reserve(measured.size());
  for (const auto& timed : measured) done.push_back(timed.action);
  const auto& planned = schedule.actions[rank];
  const auto [plan, did] = std::mismatch(planned.begin(), planned.end(), done.begin(), done.end());
  if (plan != planned.end() || did != done.end()) {
    const auto place = static_cast<size_t>(plan - planned.begin());
    throw InvalidArgument("[pipeline_record] expected that rank " + std::to_string(rank) +
                          " does the schedule's actions in order, number " + std::to_string(place + 1) +
                          " being " + action_text(planned, place) + ", but got " + action_text(done, place));
  }
  for (const auto& [action, begin, end] : measured) {
    if (std::isfinite(begin) && std::isfinite(end) && begin <= end) continue;
    throw InvalidArgument("[pipeline_record] expected that " + describe(action) + " on rank " +
                          std::to_string(rank) + " begins and then ends, but got times from " +
                          std::to_string(begin) + " s to " + std::to_string(end) + " s");
  }
}

void check_measured(const PipelineSchedule& schedule, const PipelineTimeline& measured) {
  if (measured.ranks.size() != schedule.actions.size()) {
    throw InvalidArgument("[pipeline_record] expected the measured times of " +
                          std::to_string(schedule.num_ranks()) + " ranks, but got those of " +
                          std::to_string(measured.ranks.size()));
  }
  for (size_t rank = 0; rank < measured.ranks.size(); ++rank)
    check_rank(schedule, rank, measured.ranks[rank]);
}

double median_of_durations(std::vector<double> durations) {
  if (durations.empty()) return 0;
  std::sort(durations.begin(), durations.end());
  const size_t upper = durations.size() / 2;
  const size_t lower = (durations.size() - 1) / 2;
  return (durations[lower] + durations[upper]) / 2;
}

/// Durations of the computations of a stage.
struct StageDurations {
  std::vector<double> forward, backward, inputs, weights;

  std::vector<double>* of(Op op) {
    switch (op) {
      case Op::kForward:
        return &forward;
      case Op::kBackward:
        return &backward;
      case Op::kBackwardInputs:
        return &inputs;
      case Op::kBackwardWeights:
        return &weights;
      default:
        return nullptr;
    }
  }
  PipelineStageTimes times() const {
    PipelineStageTimes times{.forward = median_of_durations(forward)};
    // simulate_pipeline() takes both halves for a whole backward, too.
    if (inputs.empty() && weights.empty()) {
      times.backward_inputs = times.backward_weights = median_of_durations(backward) / 2;
    } else {
      times.backward_inputs = median_of_durations(inputs);
      times.backward_weights = median_of_durations(weights);
    }
    return times;
  }
};

struct Span {
  double first = std::numeric_limits<double>::infinity();
  double last = 0;

  double seconds() const { return last > first ? last - first : 0; }
};

Span computing_span(const PipelineTimeline& timeline) {
  Span span;
  for (const auto& rank : timeline.ranks) {
    for (const auto& [action, begin, end] : rank) {
      if (!is_pipeline_computation(action.op)) continue;
      span.first = std::min(span.first, begin);
      span.last = std::max(span.last, end);
    }
  }
  if (!std::isfinite(span.first)) span.first = 0;
  return span;
}

}  // namespace

PipelineTimes median_pipeline_times(const PipelineSchedule& schedule, const PipelineTimeline& measured) {
  check_measured(schedule, measured);
  std::vector<StageDurations> durations(schedule.rank_of_stage.size());
  for (const auto& rank : measured.ranks) {
    for (const auto& [action, begin, end] : rank) {
      const auto stage = static_cast<size_t>(action.stage);
      if (stage >= durations.size()) {
        throw InvalidArgument("[pipeline_record] expected a stage below " + std::to_string(durations.size()) +
                              ", but got " + describe(action));
      }
      if (auto* known = durations[stage].of(action.op)) known->push_back(end - begin);
    }
  }
  PipelineTimes times;
  for (const auto& stage : durations) times.stages.push_back(stage.times());
  return times;
}

PipelineRecord pipeline_record(const PipelineSchedule& schedule, const PipelineTimeline& measured,
                               const PipelineRecordOptions& options) {
  PipelineTimes times = median_pipeline_times(schedule, measured);
  times.transfer = options.transfer;
  times.buffers = options.buffers;
  const PipelineTimeline planned = simulate_pipeline(schedule, times);
  const Span planned_span = computing_span(planned);
  const Span span = computing_span(measured);
  PipelineRecord record{.step = options.step,
                        .schedule = schedule.name,
                        .ranks = schedule.num_ranks(),
                        .stages = schedule.num_stages(),
                        .micro_batches = schedule.num_micro_batches,
                        .planned_seconds = planned_span.seconds(),
                        .seconds = span.seconds(),
                        .planned_bubble = planned.bubble(),
                        .bubble = measured.bubble()};
  // A rank may begin to wait for its first message before any rank computes.
  const auto since = [](const Span& begun, double time) { return std::max(time - begun.first, 0.0); };
  for (size_t rank = 0; rank < measured.ranks.size(); ++rank) {
    for (size_t i = 0; i < measured.ranks[rank].size(); ++i) {
      const auto& plan = planned.ranks[rank][i];
      const auto& done = measured.ranks[rank][i];
      record.actions.push_back({.rank = static_cast<int64_t>(rank),
                                .action = done.action,
                                .planned_begin = since(planned_span, plan.begin),
                                .planned_end = since(planned_span, plan.end),
                                .begin = since(span, done.begin),
                                .end = since(span, done.end)});
    }
  }
  record.num_actions = static_cast<int64_t>(record.actions.size());
  return record;
}

}  // namespace lockstep
