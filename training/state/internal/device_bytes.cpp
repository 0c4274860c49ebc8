#include "lockstep/training/state/internal/device_bytes.h"

#include <algorithm>
#include <vector>

namespace lockstep {

AllocatedBytes bytes_on_accelerators(const Strategy& strategy) {
  AllocatedBytes bytes;
  std::vector<torch::Device> counted;
  for (const auto& logical : strategy.devices()) {
    const torch::Device device = logical.torch_device();
    if (std::find(counted.begin(), counted.end(), device) != counted.end()) continue;
    counted.push_back(device);
    const auto allocated = allocated_on(device);
    if (!allocated) continue;
    bytes.now += allocated->now;
    bytes.peak += allocated->peak;
  }
  return bytes;
}

}  // namespace lockstep
