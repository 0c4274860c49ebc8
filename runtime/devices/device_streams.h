#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// The calling thread's current stream on a device that is no CPU.
c10::Stream current_stream(c10::Device device);

/// LibTorch has a pool of 32 streams of each priority a GPU, and hands them out in turn.
enum class StreamPriority { kNormal, kHigh };

/// A stream out of LibTorch's pool. Those that replicas compute on are of normal priority; what works for
/// them beside (input, sums) takes high ones, so that in a process that makes many of them it never gets a
/// replica's stream: what one gives to a stream that another captures would become part of the graph.
c10::Stream stream_from_pool(c10::Device device, StreamPriority priority = StreamPriority::kNormal);

/// A stream a GPU, the same at every call. Thread-safe.
class DeviceStreams {
 public:
  /// `device` is no CPU. Its stream comes out of LibTorch's pool at the first call.
  c10::Stream of(c10::Device device);
  /// Makes the calling thread's current streams wait for all that these have been given, without the host.
  /// Passes over devices that have failed; does not throw.
  void join_current();

 private:
  Mutex mutex_;
  std::vector<c10::Stream> streams_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
