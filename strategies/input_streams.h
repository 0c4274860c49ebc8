#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/device.h"
#include "lockstep/runtime/stream_fence.h"

namespace lockstep {

/// A stream a GPU on which batches are made ready (copied, resized, normalised) while the replicas compute on
/// theirs. On CPUs it is empty, and all its calls do nothing. Thread-safe.
class InputStreams {
 public:
  /// Streams out of LibTorch's pool for the GPUs among `devices`, whose work comes after what the calling
  /// thread's current streams had.
  explicit InputStreams(const std::vector<LogicalDevice>& devices);

  bool empty() const { return streams_.empty(); }

  /// Calls `make()` with these streams as the thread's current ones. Returns what it does; `ready` becomes
  /// the end of what it gave to the streams.
  template <typename Make>
  auto run(StreamFence& ready, const Make& make) const {
    const c10::MultiStreamGuard on_streams(streams_);
    auto result = make();
    for (const auto& stream : streams_) ready.record(stream);
    return result;
  }

  /// Makes the calling thread's current streams wait for `ready`, without the host.
  void hand_over(StreamFence& ready) const;
  /// Keeps the memory of a tensor made here from being taken again before what the calling thread's current
  /// stream has by then.
  void keep_for_current_stream(const torch::Tensor& tensor) const;

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace lockstep
