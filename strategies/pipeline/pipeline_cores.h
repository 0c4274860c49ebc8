#pragma once

#include <vector>

#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep {

/// Returns, for each action of a rank, its part of the ranks that wait meanwhile and whose cores it may
/// compute with: the number of ranks that compute nothing from the action's begin to its end, divided by the
/// number of the others; 0 for sends and receives. `is_near` says which ranks are on the rank's machine;
/// others have no part in it.
///
/// The parts of all ranks that compute at one moment never add up to more than the ranks that wait then.
///
/// Example:
///
///     const auto planned = simulate_pipeline(schedule, uniform_pipeline_times(schedule, 1, 2));
///     const auto parts = waiting_ranks(planned, 0, {true, true});  // the first forward: 1
std::vector<double> waiting_ranks(const PipelineTimeline& planned, int rank,
                                  const std::vector<bool>& is_near);

}  // namespace lockstep
