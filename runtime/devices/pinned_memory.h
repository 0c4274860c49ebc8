#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep {

/// What `device` copies from by itself, while the host goes on: for a GPU the tensor in pinned memory, for
/// any other device, and a tensor that is not on the CPU, the tensor itself. LibTorch keeps such memory, and
/// takes it again once what was copied from it has arrived. May block for a copy on the host. Throws as
/// LibTorch where the system gives no more of it.
at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device);

}  // namespace lockstep
