#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

/// The stream of a replica's work: its own stream on its GPU, so that replicas on one GPU run concurrently;
/// nullopt on a CPU.
using ReplicaStream = std::optional<c10::Stream>;

/// Returns a stream from LibTorch's pool, or nullopt for a CPU.
ReplicaStream make_replica_stream(const LogicalDevice& device);

/// Adds to `fence` the work queued so far on the calling thread's current streams, on the devices of
/// `streams`.
void record_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams);
/// Makes those current streams wait for `fence`.
void block_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams);

/// While this object lives, the calling thread's current device and stream are the replica's. That work runs
/// after the work already on the thread's previous stream on that device, and before work added to it
/// afterwards; the host does not wait. Does nothing for a replica on a CPU.
class ReplicaStreamGuard {
 public:
  explicit ReplicaStreamGuard(const ReplicaStream& stream);
  ~ReplicaStreamGuard();
  ReplicaStreamGuard(const ReplicaStreamGuard&) = delete;
  ReplicaStreamGuard& operator=(const ReplicaStreamGuard&) = delete;

 private:
  ReplicaStream stream_;
  std::optional<c10::StreamGuard> on_stream_;
};

}  // namespace lockstep
