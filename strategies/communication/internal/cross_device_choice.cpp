#include "lockstep/strategies/communication/internal/cross_device_choice.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {

std::vector<CrossDeviceCandidate> candidates_for(const Devices& devices) {
  const bool is_of_one_type = std::all_of(devices.begin(), devices.end(), [&](const LogicalDevice& device) {
    return device.type == devices[0].type;
  });
  if (!is_of_one_type) return {{std::make_shared<ReductionToOneDevice>(), "devices of different kinds"}};
  if (devices.size() > 1 && devices[0].is_cuda()) {
    return {{std::make_shared<NcclAllReduce>(), "every replica has a GPU of its own"},
            {std::make_shared<HierarchicalCopyAllReduce>(), "replicas share this process's memory"}};
  }
  return {{std::make_shared<HierarchicalCopyAllReduce>(),
           devices.size() == 1 ? "one replica" : "replicas share this process's memory"}};
}

OpenedCrossDeviceOps open_first(const std::vector<CrossDeviceCandidate>& candidates, const Devices& devices,
                                std::chrono::milliseconds timeout) {
  std::string refusals;
  for (size_t i = 0;; ++i) {
    const auto& [ops, reason] = candidates.at(i);
    try {
      ops->check_devices(devices);
      return {ops, reason + refusals, ops->make_channel(devices, timeout)};
    } catch (const std::exception&) {
      if (i + 1 == candidates.size()) throw;
      const std::string why = error_line(std::current_exception());
      TORCH_WARN("cross-device ops: taking ", candidates[i + 1].ops->name(), ", because ", why);
      refusals += c10::str("; not ", ops->name(), ": ", why);
    }
  }
}

}  // namespace lockstep
