#include "lockstep/strategies/pipeline/pipeline_cores.h"

#include <algorithm>

namespace lockstep {
namespace {

/// Tells moments apart that are the same up to rounding.
constexpr double kMoment = 1e-9;

bool computes_during(const std::vector<TimedPipelineAction>& actions, const TimedPipelineAction& other) {
  return std::any_of(actions.begin(), actions.end(), [&](const TimedPipelineAction& action) {
    return is_computation(action.action.op) && action.begin < other.end - kMoment &&
           action.end > other.begin + kMoment;
  });
}

}  // namespace

std::vector<double> waiting_ranks(const PipelineTimeline& planned, int rank,
                                  const std::vector<bool>& is_near) {
  const auto& own = planned.ranks[static_cast<size_t>(rank)];
  const auto num_near = std::count(is_near.begin(), is_near.end(), true);
  std::vector<double> parts;
  for (const auto& action : own) {
    int waiting = 0;
    for (size_t other = 0; other < planned.ranks.size(); ++other) {
      if (is_computation(action.action.op) && is_near[other] && static_cast<int>(other) != rank &&
          !computes_during(planned.ranks[other], action))
        ++waiting;
    }
    parts.push_back(waiting / static_cast<double>(num_near - waiting));
  }
  return parts;
}

}  // namespace lockstep
