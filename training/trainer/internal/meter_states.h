#pragma once

#include <vector>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/trainer/step_meters.h"

namespace lockstep {

/// Returns the sums of the meters of all replicas of all workers; `local` holds this process's. A collective;
/// waits for the devices. Throws InvalidArgument for a metric without restore().
StateValue save_meters(Strategy& strategy, const std::vector<StepMeters*>& local);

/// Copies one replica's sums to new memory on its device. Throws InvalidArgument for a metric without
/// restore().
std::vector<MetricState> copy_meters(StepMeters& meters);
/// Restores, on the replica's device, the result of copy_meters() for the same meters.
void put_back_meters(StepMeters& meters, const std::vector<MetricState>& copies, const torch::Device& device);

/// Throws InvalidArgument for a metric without restore().
void check_restorable(StepMeters& meters);

/// Restores the result of save_meters(). If it was saved with another number of replicas, replica 0 gets all
/// sums over examples. Throws CheckpointError if the meters have other metrics.
void load_meters(Strategy& strategy, const StateView& saved, const std::vector<StepMeters*>& local);

}  // namespace lockstep
