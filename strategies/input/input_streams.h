#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

/// On which streams batches for GPUs are made ready: on streams of their own, where they are copied, resized
/// and normalised while the replicas compute on theirs, or on whichever the thread that makes them has. On
/// CPUs all calls do nothing. Thread-safe.
class InputStreams {
 public:
  enum class Kind { kOwn, kCurrent };

  /// For the GPUs among `devices`; their own streams come out of LibTorch's pool.
  InputStreams(const std::vector<LogicalDevice>& devices, Kind kind);

  /// Whatever is made from now on comes after what the calling thread's current streams had.
  void follow_current() const;
  /// Calls `make()` with the streams as the thread's current ones and returns what it does. `ready` becomes
  /// the end of what it gave to the streams.
  template <typename Make>
  auto run(StreamFence& ready, const Make& make) const {
    const c10::MultiStreamGuard on_streams(own_);
    auto result = make();
    record_current(ready);
    return result;
  }

  /// Makes the calling thread's current streams wait for `ready`, without the host.
  void hand_over(StreamFence& ready) const;
  /// Keeps the memory of a tensor made here from being taken again before what the calling thread's current
  /// stream has by then.
  void keep_for_current_stream(const torch::Tensor& tensor) const;

 private:
  void record_current(StreamFence& fence) const;

  std::vector<torch::Device> gpus_;
  std::vector<c10::Stream> own_;  // of each GPU; empty: the current ones
};

}  // namespace lockstep
