#pragma once

// Internal to the fake GPU: counts of what it was asked to do.

#include <cstddef>
#include <string>

#include "lockstep/tests/gpu/fake_gpu.h"

namespace lockstep::fake_gpu {

/// Adds one to `count`, a member of DriverCalls.
void count_call(int64_t DriverCalls::*count, int64_t by = 1);
void forget_driver_calls();

/// Returns how many kernels LibTorch launches on a GPU for an operator on `lists` lists of `tensors` tensors
/// each: those of multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh) take this many tensors at once,
/// if they are not large.
int64_t kernels_for_lists(size_t lists, size_t tensors);

}  // namespace lockstep::fake_gpu
