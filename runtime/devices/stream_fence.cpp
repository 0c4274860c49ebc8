#include "lockstep/runtime/devices/stream_fence.h"

#include <algorithm>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {

void StreamFence::record(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> seen;
  for (const auto& tensor : tensors) {
    const at::Device device = tensor.device();
    if (device.is_cpu() || std::find(seen.begin(), seen.end(), device) != seen.end()) continue;
    seen.push_back(device);
    record(current_stream(device));
  }
}

void StreamFence::record(const c10::Stream& stream) {
  if (!device_traits(stream.device_type()).has_events) {
    synchronize_stream(stream);  // nobody has to wait for work that is done
    return;
  }
  c10::Event event(stream.device_type());
  event.record(stream);
  MutexLock lock(mutex_);
  events_.push_back(std::move(event));
}

void StreamFence::block(const at::Device& consumer) {
  if (consumer.is_cpu()) return;
  block(current_stream(consumer));
}

void StreamFence::block(const c10::Stream& consumer) {
  MutexLock lock(mutex_);
  for (const auto& event : events_) event.block(consumer);
}

}  // namespace lockstep
