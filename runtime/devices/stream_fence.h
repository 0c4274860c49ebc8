#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// A point in the work of device streams for which other streams can wait without blocking the host. CPU
/// tensors need no fence and are skipped. Thread-safe.
///
/// Example:
///
///     StreamFence fence;
///     fence.record(producer_stream);
///     fence.block(consumer_stream);
class StreamFence {
 public:
  /// Adds the current end of the current stream on each device of `tensors`.
  void record(const std::vector<at::Tensor>& tensors);
  /// Adds the current end of `stream`. Blocks until then if the backend of its device has no events.
  void record(const c10::Stream& stream);
  /// Makes the current stream of `consumer` wait for all recorded points. Does nothing for a CPU.
  void block(const at::Device& consumer);
  /// Makes `consumer` wait for all recorded points.
  void block(const c10::Stream& consumer);

 private:
  Mutex mutex_;
  std::vector<c10::Event> events_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
