#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/stream_fence.h"
#include "lockstep/runtime/graphs/capture_gate.h"

namespace lockstep {

/// Returns whether these are the only handles of their tensors, and these tensors the only ones in their
/// memory. Returns false if one is sparse.
bool are_unshared(const std::vector<const torch::Tensor*>& tensors);

/// Chooses the streams that batches for GPUs are made on: separate streams, which copy, resize and normalize
/// while the replicas compute on theirs, or the current streams of the thread that makes the batches. Does
/// nothing on CPUs. Thread-safe.
///
/// Example:
///
///     InputStreams streams(strategy.devices(), InputStreams::Kind::kOwn);
///     StreamFence ready;
///     auto batch = streams.run(ready, [&] { return host_batch.to(device, /*non_blocking=*/true); });
///     streams.hand_over(ready);
///     ...                          // work with the batch
///     streams.follow_current();    // before the batch is dropped
class InputStreams {
 public:
  enum class Kind { kOwn, kCurrent };

  /// Takes the GPUs among `devices`. For kOwn, takes streams of high priority from LibTorch's pool.
  InputStreams(const std::vector<LogicalDevice>& devices, Kind kind);

  /// Makes all later work wait for the work that the calling thread's current streams have now.
  void follow_current() const;
  /// Calls `make()` with these streams as the thread's current ones, and returns its result. Records the end
  /// of its work in `ready`.
  /// Blocks while work of these GPUs is captured; see CaptureGuard.
  template <typename Make>
  auto run(StreamFence& ready, const Make& make) const {
    const UncapturedGuard uncaptured(gpus_);
    const c10::MultiStreamGuard on_streams(own_);
    auto result = make();
    record_current(ready);
    return result;
  }

  /// Makes the calling thread's current streams wait for `ready`. Does not block the host.
  void hand_over(StreamFence& ready) const;
  /// Returns whether batches are made on separate streams. Call follow_current() before you drop
  /// such a batch, since these streams reuse its memory.
  bool are_separate() const { return !own_.empty(); }
  /// Keeps the memory of a tensor made here from being reused before the work that the calling thread's
  /// current stream has when the tensor is dropped is done.
  void keep_for_current_stream(const torch::Tensor& tensor) const;

 private:
  void record_current(StreamFence& fence) const;

  std::vector<torch::Device> gpus_;
  std::vector<c10::Stream> own_;  // of each GPU; empty for the current streams
};

}  // namespace lockstep
