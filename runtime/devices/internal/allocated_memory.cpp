#include "lockstep/runtime/devices/internal/allocated_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace lockstep {

std::optional<AllocatedBytes> allocated_on(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  const auto stats = allocator->getDeviceStats(device.has_index() ? device.index() : c10::DeviceIndex{0});
  const auto& bytes = stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return AllocatedBytes{bytes.current, bytes.peak};
}

}  // namespace lockstep
