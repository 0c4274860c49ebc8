#pragma once

#include <string>

#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// The highest speed of the devices of a training.
struct PeakFlops {
  double flops_per_second = 0;  ///< of all replicas together
  std::string source;           ///< one line: where it is from
};

/// Returns the sum over all workers' devices: for known GPUs, what the maker states for the precision, and
/// for others, CPUs above all, what a matrix product of each replica reaches at this moment, which takes
/// about a third of a second. A collective of workers that step together.
PeakFlops peak_flops(Strategy& strategy, PrecisionKind precision);

}  // namespace lockstep::apps
