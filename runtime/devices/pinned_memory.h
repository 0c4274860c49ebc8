#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep {

/// Returns a tensor from which `device` copies by itself while the host continues: for a GPU, `tensor` in
/// pinned memory; for any other device, and if `tensor` is not on the CPU, `tensor` itself. LibTorch keeps
/// pinned memory and reuses it once the copies from it have arrived. May block for a copy on the host. Throws
/// LibTorch's error if the system has no more pinned memory.
at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device);

}  // namespace lockstep
