#include "lockstep/strategies/pipeline/pipeline_timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// Ends of the sends and receives between two stages, in order.
struct ChannelTimes {
  std::vector<double> sent, received;
};

class PipelineSimulation {
 public:
  PipelineSimulation(const PipelineSchedule& schedule, const PipelineTimes& times)
      : schedule_(schedule), times_(times) {}

  PipelineTimeline run() {
    PipelineTimeline timeline;
    timeline.ranks.resize(schedule_.actions.size());
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (size_t rank = 0; rank < schedule_.actions.size(); ++rank) {
        auto& done = timeline.ranks[rank];
        while (done.size() < schedule_.actions[rank].size()) {
          const auto& action = schedule_.actions[rank][done.size()];
          const double begin = done.empty() ? 0 : done.back().end;
          const auto end = end_of(action, begin);
          if (!end) break;
          done.push_back({action, begin, *end});
          has_moved = true;
        }
      }
    }
    return timeline;
  }

 private:
  /// Returns nullopt as long as the other rank has not come so far.
  std::optional<double> end_of(const PipelineAction& action, double begin) {
    const auto& stage = times_.stages[static_cast<size_t>(action.stage)];
    switch (action.op) {
      case Op::kForward:
        return begin + stage.forward;
      case Op::kBackward:
        return begin + stage.backward_inputs + stage.backward_weights;
      case Op::kBackwardInputs:
        return begin + stage.backward_inputs;
      case Op::kBackwardWeights:
        return begin + stage.backward_weights;
      case Op::kSendActivation:
        return end_of_send(channels_[{action.stage, false}], begin);
      case Op::kSendGradient:
        return end_of_send(channels_[{action.stage - 1, true}], begin);
      case Op::kReceiveActivation:
        return end_of_receive(channels_[{action.stage - 1, false}], begin);
      case Op::kReceiveGradient:
        return end_of_receive(channels_[{action.stage, true}], begin);
    }
    return std::nullopt;
  }

  std::optional<double> end_of_send(ChannelTimes& channel, double begin) const {
    const auto buffers = static_cast<size_t>(times_.buffers);
    double end = begin;
    if (channel.sent.size() >= buffers) {
      const size_t before = channel.sent.size() - buffers;
      if (before >= channel.received.size()) return std::nullopt;
      end = std::max(end, channel.received[before]);
    }
    channel.sent.push_back(end);
    return end;
  }

  std::optional<double> end_of_receive(ChannelTimes& channel, double begin) const {
    const size_t number = channel.received.size();
    if (number >= channel.sent.size()) return std::nullopt;
    channel.received.push_back(std::max(begin, channel.sent[number] + times_.transfer));
    return channel.received.back();
  }

  const PipelineSchedule& schedule_;
  const PipelineTimes& times_;
  std::map<std::pair<int, bool>, ChannelTimes> channels_;
};

}  // namespace

bool is_computation(PipelineOp op) {
  return op <= Op::kBackwardWeights;
}

PipelineTimes uniform_pipeline_times(const PipelineSchedule& schedule, double forward, double backward) {
  PipelineTimes times;
  times.stages.assign(schedule.rank_of_stage.size(), {forward, backward / 2, backward / 2});
  return times;
}

double PipelineTimeline::seconds() const {
  double end = 0;
  for (const auto& rank : ranks)
    for (const auto& action : rank) end = std::max(end, action.end);
  return end;
}

double PipelineTimeline::busy(int rank) const {
  double sum = 0;
  for (const auto& [action, begin, end] : ranks.at(static_cast<size_t>(rank)))
    if (is_computation(action.op)) sum += end - begin;
  return sum;
}

double PipelineTimeline::bubble(int rank) const {
  double first = 0, last = 0;
  bool has_begun = false;
  for (const auto& [action, begin, end] : ranks.at(static_cast<size_t>(rank))) {
    if (!is_computation(action.op)) continue;
    if (!std::exchange(has_begun, true)) first = begin;
    last = end;
  }
  return last > first ? 1 - busy(rank) / (last - first) : 0;
}

double PipelineTimeline::bubble() const {
  double most = 0;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) most = std::max(most, bubble(rank));
  return most;
}

PipelineTimeline simulate_pipeline(const PipelineSchedule& schedule, const PipelineTimes& times) {
  check_pipeline_schedule(schedule, {.buffers = times.buffers});
  if (times.stages.size() != schedule.rank_of_stage.size()) {
    throw InvalidArgument("[simulate_pipeline] expected times for " + std::to_string(schedule.num_stages()) +
                          " stages, but got " + std::to_string(times.stages.size()));
  }
  return PipelineSimulation(schedule, times).run();
}

}  // namespace lockstep
