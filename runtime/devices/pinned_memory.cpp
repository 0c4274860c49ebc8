#include "lockstep/runtime/devices/pinned_memory.h"

#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {

bool copies_from_pinned_memory(c10::Device device) {
  return !device.is_cpu() && device_traits(device.type()).has_pinned_memory;
}

at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device) {
  if (!copies_from_pinned_memory(device) || !tensor.is_cpu() || tensor.numel() == 0 ||
      tensor.is_pinned(device))
    return tensor;
  // pin_memory() keeps strides, and cannot copy elements that share their memory.
  return tensor.contiguous(tensor.suggest_memory_format()).pin_memory(device);
}

}  // namespace lockstep
