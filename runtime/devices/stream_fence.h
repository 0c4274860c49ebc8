#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// A point in the work of device streams that other streams can be made to wait for, without blocking the
/// host. CPU tensors need none and are passed over. Thread-safe.
class StreamFence {
 public:
  /// Adds the present end of the current stream of every device that `tensors` lie on.
  void record(const std::vector<at::Tensor>& tensors);
  /// Adds the present end of `stream`.
  void record(const c10::Stream& stream);
  /// Makes the current stream of `consumer` wait for all recorded points. Does nothing for the CPU.
  void block(const at::Device& consumer);
  /// Makes `consumer` wait for all recorded points.
  void block(const c10::Stream& consumer);

 private:
  Mutex mutex_;
  std::vector<c10::Event> events_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
