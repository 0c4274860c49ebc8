#pragma once

// What the sources of the fake GPU share; tests include fake_gpu.h.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/tests/gpu/stream_order.h"

namespace lockstep::fake_gpu {

StreamOrder& order();
c10::Allocator& device_allocator();
/// The calling thread's.
StreamName current_stream(c10::Device device);
bool is_pinned(const void* data);
/// Notes `compute()`, which returns what it has written, as one operator that reads these tensors. What it
/// does itself on the GPU's tensors is not noted.
void as_operator(const std::string& name, const std::vector<at::Tensor>& reads,
                 const std::function<std::vector<at::Tensor>()>& compute);
/// The one that makes a fake GPU's generator's numbers.
at::Generator cpu_generator(const at::Generator& generator);

}  // namespace lockstep::fake_gpu
