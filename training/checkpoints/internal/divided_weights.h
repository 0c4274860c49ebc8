#pragma once

#include <string>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {

/// Returns the model of a state, with stand-ins for parameters of which the replicas hold parts. On workers
/// without a state of their own, only parameters.
NamedTensors divided_weights(const TrainingState::Collected& collected);

/// Writes such weights as save_weights() does, on the worker with replica 0. A collective.
void save_divided_weights(const std::string& path, Strategy& strategy, const NamedTensors& weights);

}  // namespace lockstep
