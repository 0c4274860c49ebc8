#include "lockstep/runtime/replicas/internal/replica_stream.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "lockstep/runtime/devices/device_streams.h"

namespace lockstep {
namespace {

/// The thread's current stream on each device, without repeats.
std::vector<c10::Stream> current_streams(const std::vector<ReplicaStream>& streams) {
  std::vector<c10::Stream> current;
  for (const auto& stream : streams) {
    if (!stream) continue;
    const c10::Stream own = current_stream(stream->device());
    if (std::find(current.begin(), current.end(), own) == current.end()) current.push_back(own);
  }
  return current;
}

}  // namespace

ReplicaStream make_replica_stream(const LogicalDevice& device) {
  if (device.is_cpu()) return std::nullopt;
  return stream_from_pool(device.torch_device());
}

void record_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams) {
  for (const auto& stream : current_streams(streams)) fence.record(stream);
}

void block_current_streams(StreamFence& fence, const std::vector<ReplicaStream>& streams) {
  for (const auto& stream : current_streams(streams)) fence.block(stream);
}

ReplicaStreamGuard::ReplicaStreamGuard(const ReplicaStream& stream) : stream_(stream) {
  if (!stream_) return;
  StreamFence before;
  before.record(current_stream(stream_->device()));
  before.block(*stream_);
  on_stream_.emplace(*stream_);
}

ReplicaStreamGuard::~ReplicaStreamGuard() {
  if (!stream_) return;
  on_stream_.reset();
  try {
    StreamFence after;
    after.record(*stream_);
    after.block(current_stream(stream_->device()));
  } catch (const c10::Error& error) {
    // The device has failed; the caller's next use of it reports that.
    TORCH_WARN("replica's stream on ", stream_->device(), ": ", error.what_without_backtrace());
  }
}

}  // namespace lockstep
