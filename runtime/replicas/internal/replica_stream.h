#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

/// Where a replica's work goes: a stream of its own on its GPU, so that replicas on one GPU compute at the
/// same time; none on a CPU.
using ReplicaStream = std::optional<c10::Stream>;

/// A stream out of LibTorch's pool; none for a CPU.
ReplicaStream make_replica_stream(const LogicalDevice& device);

/// Adds the present end of the calling thread's current streams, on the devices of `streams`, to `fence`.
void record_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams);
/// Makes those current streams wait for `fence`.
void block_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams);

/// While it lives, the calling thread's current device and stream are the replica's. The work meanwhile comes
/// after what the thread's stream on that device had before, and before what it gets afterwards; the host
/// waits for neither. Does nothing for a replica on a CPU.
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
