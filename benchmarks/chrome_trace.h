#pragma once

#include <istream>

#include "lockstep/benchmarks/device_use.h"

namespace lockstep::benchmarks {

/// What GPU `device` did, out of a trace in Chrome's format as LibTorch's profiler (Kineto) writes it: events
/// of category kernel, gpu_memset and gpu_memcpy with their begin and duration in microseconds; the name of a
/// copy says whence and whither. Throws std::runtime_error where the stream holds no such trace.
DeviceActivity read_chrome_trace(std::istream& trace, int device);

}  // namespace lockstep::benchmarks
