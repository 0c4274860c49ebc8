#include "lockstep/strategies/communication/internal/cross_device_choice.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {

std::vector<CrossDeviceCandidate> candidates_for(const Devices& devices) {
  const auto is_gpu = [](const LogicalDevice& device) { return device.kind == DeviceKind::kGpu; };
  const auto gpus = std::count_if(devices.begin(), devices.end(), is_gpu);
  if (gpus > 0 && gpus < static_cast<int64_t>(devices.size()))
    return {{std::make_shared<ReductionToOneDevice>(), "devices of different kinds"}};
  if (gpus > 1) {
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
