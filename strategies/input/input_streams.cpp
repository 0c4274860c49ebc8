#include "lockstep/strategies/input/input_streams.h"

#include <algorithm>
#include <map>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"

namespace lockstep {

InputStreams::InputStreams(const std::vector<LogicalDevice>& devices, Kind kind) {
  for (const auto& device : devices) {
    const torch::Device on = device.torch_device();
    if (on.is_cpu() || std::find(gpus_.begin(), gpus_.end(), on) != gpus_.end()) continue;
    gpus_.push_back(on);
    // A backend without a pool works in the order in which it is called.
    if (kind == Kind::kOwn && device_traits(on.type()).has_stream_pool)
      own_.push_back(stream_from_pool(on, StreamPriority::kHigh));
  }
}

void InputStreams::follow_current() const {
  for (const auto& stream : own_) {
    StreamFence before;
    before.record(current_stream(stream.device()));
    before.block(stream);
  }
}

void InputStreams::record_current(StreamFence& fence) const {
  for (const auto& gpu : gpus_) fence.record(current_stream(gpu));
}

void InputStreams::hand_over(StreamFence& ready) const {
  for (const auto& gpu : gpus_) ready.block(current_stream(gpu));
}

void InputStreams::keep_for_current_stream(const torch::Tensor& tensor) const {
  if (!tensor.defined() || tensor.is_cpu()) return;
  const auto is_there = [&](const c10::Stream& stream) { return stream.device() == tensor.device(); };
  if (std::any_of(own_.begin(), own_.end(), is_there)) tensor.record_stream(current_stream(tensor.device()));
}

bool are_unshared(const std::vector<const torch::Tensor*>& tensors) {
  std::map<const void*, size_t> handles;  // of tensors and of storages
  for (const auto* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (!tensor->has_storage()) return false;
    if (++handles[tensor->unsafeGetTensorImpl()] == 1) ++handles[tensor->storage().unsafeGetStorageImpl()];
  }
  return std::all_of(tensors.begin(), tensors.end(), [&](const torch::Tensor* tensor) {
    return !tensor->defined() ||
           (tensor->use_count() == handles[tensor->unsafeGetTensorImpl()] &&
            tensor->storage().use_count() == handles[tensor->storage().unsafeGetStorageImpl()]);
  });
}

}  // namespace lockstep
