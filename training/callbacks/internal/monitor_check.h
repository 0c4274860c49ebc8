#pragma once

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// Checks a monitor when a fit begins, so that a wrong name does not cost an epoch. Throws InvalidArgument as
/// Monitor::is_known() does. Warns if only another callback can add the monitored value.
void check_monitor(const Monitor& monitor, const FitState& state);

}  // namespace lockstep
