#pragma once

#include <cstdint>

#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// Bytes of tensors on GPUs.
struct GpuBytes {
  int64_t now = 0;
  int64_t peak = 0;  ///< since the process began, or since somebody reset it
};

/// Returns the sum over the strategy's GPUs, zeros if it has none.
GpuBytes bytes_on_gpus(const Strategy& strategy);

}  // namespace lockstep
