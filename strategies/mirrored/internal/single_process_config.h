#pragma once

#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {

/// Returns all GPUs, or the CPU if there are none.
Devices default_devices();

/// Returns one device per replica: each of `names`, in the syntax of parse_device, repeated
/// `replicas_per_device` times. Without names, uses the default devices. Throws InvalidArgument if there is
/// less than one replica per device, and as parse_devices does.
Devices devices_of_replicas(const std::string& strategy, const std::vector<std::string>& names,
                            int replicas_per_device);

/// Returns the configuration of a strategy with these replicas in one process. Throws as StrategyOptions
/// says.
StrategyConfig single_process_config(std::string name, Devices replica_devices, StrategyOptions options);

}  // namespace lockstep
