#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace lockstep {

/// Bytes of tensors on a device.
struct AllocatedBytes {
  int64_t now = 0;
  int64_t peak = 0;  ///< since the process began, or since somebody reset it
};

/// Returns what the allocator of a device counts. Returns nothing for a CPU, whose tensors count as the
/// process's memory, for a device that nobody has used, and for a backend whose allocator does not count.
std::optional<AllocatedBytes> allocated_on(c10::Device device);

}  // namespace lockstep
