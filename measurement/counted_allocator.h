#pragma once

#include <cstdint>

namespace lockstep::measurement {

/// Has LibTorch count the bytes of all CPU tensors that the process allocates from then on, in all threads.
/// Call it before the first tensor is made. Memory that was allocated earlier is not counted.
void count_cpu_tensors();

/// Bytes that CPU tensors have now.
int64_t counted_bytes();
/// The most that they have had at a time since restart_counted_peak().
int64_t counted_peak();
void restart_counted_peak();

}  // namespace lockstep::measurement
