#include "lockstep/strategies/mirrored/mirrored_strategy.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/internal/single_process_config.h"

namespace lockstep {
namespace {

Devices one_place(const std::string& strategy, const LogicalDevice& device, const StrategyOptions& options) {
  if (options.replicas_per_device == 1) return {device};
  throw InvalidArgument("[" + strategy + "] expected 1 replica a device, but got " +
                        std::to_string(options.replicas_per_device) + "; MirroredStrategy takes more");
}

}  // namespace

MirroredStrategy::MirroredStrategy(std::vector<std::string> devices, StrategyOptions options)
    : Strategy(single_process_config(
          "MirroredStrategy", devices_of_replicas("MirroredStrategy", devices, options.replicas_per_device),
          options)) {}

std::vector<std::string> cpu_devices(int num_replicas) {
  if (num_replicas < 1)
    throw InvalidArgument("[devices] expected 1 or more replicas, but got " + std::to_string(num_replicas));
  std::vector<std::string> names;
  for (const auto& device : logical_cpus(num_replicas)) names.push_back(device.str());
  return names;
}

OneDeviceStrategy::OneDeviceStrategy(const std::string& device, StrategyOptions options)
    : Strategy(single_process_config(
          "OneDeviceStrategy", one_place("OneDeviceStrategy", parse_device(device), options), options)) {}

DefaultStrategy::DefaultStrategy(StrategyOptions options)
    : Strategy(single_process_config("DefaultStrategy",
                                     one_place("DefaultStrategy", default_devices()[0], options), options)) {}

std::unique_ptr<Strategy> get_strategy() {
  return std::make_unique<DefaultStrategy>();
}

}  // namespace lockstep
