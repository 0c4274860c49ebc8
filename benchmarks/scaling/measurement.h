#pragma once

#include "lockstep/benchmarks/scaling/measured_scaling.h"
#include "lockstep/benchmarks/scaling/scaling_options.h"

namespace lockstep::benchmarks {

/// Starts the jobs for one number of processes after another and measures all of them in turn, round by
/// round, changing which comes first. Blocks for minutes; says on standard error how far it is.
MeasuredScaling measure_scaling(const ScalingOptions& options);

}  // namespace lockstep::benchmarks
