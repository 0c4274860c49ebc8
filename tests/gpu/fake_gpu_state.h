#pragma once

// Shared by the sources of the fake GPU; tests include fake_gpu.h.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/tests/gpu/stream_order.h"

namespace lockstep::fake_gpu {

StreamOrder& order();
/// The calling thread's.
c10::Device current_device();
/// The calling thread's.
StreamName current_stream(c10::Device device);
/// The one that makes a fake GPU's generator's numbers.
at::Generator cpu_generator(const at::Generator& generator);
void forget_graphs();
/// Returns the uses of NCCL that CUDA would not survive.
std::vector<std::string> nccl_complaints();
void forget_nccl();
/// Notes a call that waits for the driver, see blocking_calls().
void note_blocking_call(const std::string& what);
/// Throws c10::AcceleratorError where the device has failed.
void check_device(int device);

}  // namespace lockstep::fake_gpu
