#pragma once

#include "lockstep/training/state/internal/state_digests.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Checks the losses of the epoch and the states of all replicas of all workers. A collective; waits for the
/// devices. Lets FitState::on_not_finite repair values that are not finite; throws NotFinite for the first
/// one if it does not. Returns the digests of the resulting states.
StateDigests require_finite(FitState& state);

}  // namespace lockstep
