#pragma once

#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {

/// All GPUs, else the CPU.
Devices default_devices();

/// Each device, spelled as for parse_device, once for each of its replicas; without names the default
/// devices. Throws InvalidArgument for less than one replica a device, and as parse_devices.
Devices places_of_replicas(const std::string& strategy, const std::vector<std::string>& names,
                           int replicas_per_device);

/// Of a strategy with these replicas and no other process. Throws as StrategyOptions says.
StrategyConfig single_process_config(std::string name, Devices places, StrategyOptions options);

}  // namespace lockstep
