#pragma once

#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/metric_access.h"

namespace lockstep {

/// The metrics of one replica, which are the same on all replicas.
using MetricsOfReplica = std::vector<MetricAccess>;

/// Returns the states of the metrics of all replicas of all workers, by name. `local` holds those of this
/// process's replicas. A collective; waits for the devices.
StateValue save_metric_states(Strategy& strategy, const std::vector<MetricsOfReplica>& local);

/// Restores the result of save_metric_states(). If it was saved with another number of replicas, replica 0
/// gets all sums over examples. Throws CheckpointError if a metric is missing or has another kind of state.
void load_metric_states(Strategy& strategy, const StateView& saved,
                        const std::vector<MetricsOfReplica>& local);

}  // namespace lockstep
