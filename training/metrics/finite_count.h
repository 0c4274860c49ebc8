#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/metrics/finite_steps.h"

namespace lockstep {

/// A replica's steps, and how many came before the first whose loss was not finite.
struct FiniteCount {
  int64_t replica = 0;
  std::string device;
  int64_t good = 0;  ///< `steps`: every loss was finite
  int64_t steps = 0;
};

/// Of this process's replicas, or of all workers', which then call it together. Waits for the devices. Throws
/// as Strategy::gather().
std::vector<FiniteCount> count_finite(const PerReplica<FiniteSteps>& steps, Strategy& strategy,
                                      bool all_workers);

}  // namespace lockstep
