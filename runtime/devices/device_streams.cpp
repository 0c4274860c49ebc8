#include "lockstep/runtime/devices/device_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream stream_from_pool(c10::Device device, StreamPriority priority) {
  if (!device_traits(device.type()).has_stream_pool) return current_stream(device);
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, priority == StreamPriority::kHigh);
}

c10::Stream DeviceStreams::of(c10::Device device) {
  MutexLock lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream.device() == device) return stream;
  }
  streams_.push_back(stream_from_pool(device, StreamPriority::kHigh));
  return streams_.back();
}

void DeviceStreams::join_current() {
  MutexLock lock(mutex_);
  for (const auto& stream : streams_) {
    try {
      StreamFence given;
      given.record(stream);
      given.block(current_stream(stream.device()));
    } catch (const c10::Error&) {
      // The device has failed and does no more work.
    }
  }
}

}  // namespace lockstep
