#pragma once

#include "lockstep/training/state/internal/state_digests.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Looks at the losses of the epoch and at the states of all replicas of all workers: a collective, which
/// waits for the devices. Returns the digests of the states, after what FitState::on_not_finite has put
/// right; throws NotFinite for the first that is not finite where it puts nothing right.
StateDigests require_finite(FitState& state);

}  // namespace lockstep
