#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

#include "lockstep/runtime/mutex.h"

namespace lockstep {

/// The calling thread's current stream on a device that is no CPU.
c10::Stream current_stream(c10::Device device);

/// A stream out of LibTorch's pool, which has 32 of this priority a GPU and hands them out in turn.
c10::Stream stream_from_pool(c10::Device device);

/// A stream a GPU, the same at every call. Thread-safe.
class DeviceStreams {
 public:
  /// `device` is no CPU. Its stream comes out of LibTorch's pool at the first call.
  c10::Stream of(c10::Device device);

 private:
  Mutex mutex_;
  std::vector<c10::Stream> streams_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
