#include "lockstep/runtime/stream_fence.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep {

void StreamFence::record(const std::vector<at::Tensor>& tensors) {
  MutexLock lock(mutex_);
  std::vector<at::Device> seen;
  for (const auto& tensor : tensors) {
    const at::Device device = tensor.device();
    if (device.is_cpu() || std::find(seen.begin(), seen.end(), device) != seen.end()) continue;
    seen.push_back(device);
    const c10::impl::VirtualGuardImpl guard(device.type());
    c10::Event event(device.type());
    event.record(guard.getStream(device));
    events_.push_back(std::move(event));
  }
}

void StreamFence::block(const at::Device& consumer) {
  if (consumer.is_cpu()) return;
  MutexLock lock(mutex_);
  const c10::impl::VirtualGuardImpl guard(consumer.type());
  for (const auto& event : events_) event.block(guard.getStream(consumer));
}

}  // namespace lockstep
