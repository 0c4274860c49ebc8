#include "lockstep/strategies/input_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep {
namespace {

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

InputStreams::InputStreams(const std::vector<LogicalDevice>& devices) {
  std::vector<torch::Device> seen;
  for (const auto& device : devices) {
    const torch::Device on = device.torch_device();
    if (on.is_cpu() || std::find(seen.begin(), seen.end(), on) != seen.end()) continue;
    seen.push_back(on);
    streams_.push_back(
        c10::impl::VirtualGuardImpl(on.type()).getStreamFromGlobalPool(on, /*isHighPriority=*/false));
    StreamFence before;
    before.record(current_stream(on));
    before.block(streams_.back());
  }
}

void InputStreams::hand_over(StreamFence& ready) const {
  for (const auto& stream : streams_) ready.block(current_stream(stream.device()));
}

void InputStreams::keep_for_current_stream(const torch::Tensor& tensor) const {
  if (tensor.defined() && !tensor.is_cpu()) tensor.record_stream(current_stream(tensor.device()));
}

}  // namespace lockstep
