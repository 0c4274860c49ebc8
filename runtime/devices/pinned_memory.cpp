#include "lockstep/runtime/devices/pinned_memory.h"

namespace lockstep {

at::Tensor pinned_for(const at::Tensor& tensor, c10::Device device) {
  if (!device.is_cuda() || !tensor.is_cpu() || tensor.numel() == 0 || tensor.is_pinned()) return tensor;
  // pin_memory() keeps strides, and cannot copy elements that share their memory.
  return tensor.contiguous(tensor.suggest_memory_format()).pin_memory();
}

}  // namespace lockstep
