#include "lockstep/training/state/internal/gpu_bytes.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <vector>

namespace lockstep {

GpuBytes bytes_on_gpus(const Strategy& strategy) {
  GpuBytes bytes;
  std::vector<torch::Device> counted;
  for (const auto& logical : strategy.devices()) {
    const torch::Device device = logical.torch_device();
    if (device.is_cpu() || std::find(counted.begin(), counted.end(), device) != counted.end()) continue;
    counted.push_back(device);
    auto* allocator = c10::getDeviceAllocator(device.type());
    if (!allocator->initialized()) continue;
    const auto stats = allocator->getDeviceStats(device.has_index() ? device.index() : c10::DeviceIndex{0});
    const auto& allocated =
        stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    bytes.now += allocated.current;
    bytes.peak += allocated.peak;
  }
  return bytes;
}

}  // namespace lockstep
