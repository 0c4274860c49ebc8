#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep {

/// Returns whether `device` is an accelerator that copies from pinned memory by itself while the host
/// continues. False for CUDA in a process that has a plugin, too, for which LibTorch pins memory then.
bool copies_from_pinned_memory(c10::Device device);

/// Returns a tensor from which `device` copies by itself while the host continues: for an accelerator,
/// `tensor` in pinned memory; for a CPU, for a backend without pinned memory, and if `tensor` is not on the
/// CPU, `tensor` itself. LibTorch keeps pinned memory and reuses it once the copies from it have arrived. May
/// block for a copy on the host. Throws LibTorch's error if the system has no more pinned memory.
at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device);

}  // namespace lockstep
