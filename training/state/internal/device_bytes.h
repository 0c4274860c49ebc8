#pragma once

#include "lockstep/runtime/devices/internal/allocated_memory.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// Returns the sum over the strategy's accelerators, zeros if it has none or their allocators do not count.
AllocatedBytes bytes_on_accelerators(const Strategy& strategy);

}  // namespace lockstep
