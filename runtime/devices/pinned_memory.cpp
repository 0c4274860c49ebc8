#include "lockstep/runtime/devices/pinned_memory.h"

#include <ATen/DeviceAccelerator.h>

#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {

bool copies_from_pinned_memory(c10::Device device) {
  // LibTorch pins memory for one type of accelerator in a process.
  return at::getAccelerator() == device.type() && device_traits(device.type()).has_pinned_memory;
}

at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device) {
  if (!copies_from_pinned_memory(device) || !tensor.is_cpu() || tensor.numel() == 0 || tensor.is_pinned())
    return tensor;
  // pin_memory() keeps strides, and cannot copy elements that share their memory.
  return tensor.contiguous(tensor.suggest_memory_format()).pin_memory();
}

}  // namespace lockstep
