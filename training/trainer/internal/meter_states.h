#pragma once

#include <vector>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/trainer/step_meters.h"

namespace lockstep {

/// What the meters of all replicas have summed up, those of other workers included, of which each brings its
/// local replicas': a collective. Waits for the devices. Throws InvalidArgument for a metric without
/// restore().
StateValue save_meters(Strategy& strategy, const std::vector<StepMeters*>& local);

/// One replica's, with memory of its own, on its device. Throws InvalidArgument for a metric without
/// restore().
std::vector<MetricState> copy_meters(StepMeters& meters);
/// Goes on, on the replica's device, from what copy_meters() has given of the same meters.
void put_back_meters(StepMeters& meters, const std::vector<MetricState>& copies, const torch::Device& device);

/// Throws InvalidArgument for a metric without restore().
void check_restorable(StepMeters& meters);

/// Puts it back. With another number of replicas than it was saved of, replica 0 gets it all. Throws
/// CheckpointError for meters of other metrics.
void load_meters(Strategy& strategy, const StateView& saved, const std::vector<StepMeters*>& local);

}  // namespace lockstep
