#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Returns the calling thread's current stream on `device`, which must not be a CPU.
c10::Stream current_stream(c10::Device device);

/// Priority of a stream. LibTorch has a pool of 32 streams for each device and priority, and hands them out
/// in turn.
enum class StreamPriority { kNormal, kHigh };

/// Returns a stream from LibTorch's pool. Replicas compute on streams of normal priority; helpers, such as
/// input and sums, use high priority. So a process that makes many streams never gives a replica's stream to
/// a helper, whose work would become part of a graph if the replica captures that stream. If the backend of
/// `device` has no pool, returns the calling thread's current stream.
c10::Stream stream_from_pool(c10::Device device, StreamPriority priority = StreamPriority::kNormal);

/// Keeps one stream for each device. Thread-safe.
///
/// Example:
///
///     DeviceStreams streams;
///     const c10::Stream stream = streams.of(c10::Device(c10::kCUDA, 0));
///     streams.join_current();
class DeviceStreams {
 public:
  /// Returns the same stream for a device at every call. The first call takes it from LibTorch's pool.
  /// `device` must not be a CPU.
  c10::Stream of(c10::Device device);
  /// Makes the calling thread's current streams wait for all work given to these streams, without blocking
  /// the host. Skips devices that have failed. Does not throw.
  void join_current();

 private:
  Mutex mutex_;
  std::vector<c10::Stream> streams_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
