#pragma once

#include <ATen/record_function.h>

#include "lockstep/benchmarks/emulation/emulated_device.h"

namespace lockstep::benchmarks {

/// While it lives, each operator that this thread calls, in forward, backward and the optimizer, takes the
/// time of an emulated device besides computing its result: that of its own floating-point operations, and of
/// the bytes that it reads and writes. Operators that only call others take none. Causal attention skips what
/// the mask hides, in blocks of 64 tokens, as fused kernels do.
class EmulatedOperatorsGuard {
 public:
  explicit EmulatedOperatorsGuard(EmulatedDevice& device);
  ~EmulatedOperatorsGuard();
  EmulatedOperatorsGuard(const EmulatedOperatorsGuard&) = delete;
  EmulatedOperatorsGuard& operator=(const EmulatedOperatorsGuard&) = delete;

 private:
  at::CallbackHandle operators_;
};

/// While it lives, this thread's operators take no time of the device, such as those of a collective, whose
/// time is that of a link.
class UncountedOperatorsGuard {
 public:
  UncountedOperatorsGuard();
  ~UncountedOperatorsGuard();
  UncountedOperatorsGuard(const UncountedOperatorsGuard&) = delete;
  UncountedOperatorsGuard& operator=(const UncountedOperatorsGuard&) = delete;
};

}  // namespace lockstep::benchmarks
