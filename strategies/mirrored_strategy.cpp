#include "lockstep/strategies/mirrored_strategy.h"

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

StrategyConfig configure(std::string name, Devices devices, StrategyOptions options) {
  return {std::move(name),          std::move(devices), std::move(options.cross_device_ops),
          options.intra_op_threads, options.seed,       options.buckets,
          options.timeout};
}

Devices default_devices() {
  Devices gpus;
  for (const auto& device : list_devices()) {
    if (device.kind == DeviceKind::kGpu) gpus.push_back(device);
  }
  return gpus.empty() ? logical_cpus(1) : gpus;
}

}  // namespace

MirroredStrategy::MirroredStrategy(std::vector<std::string> devices, StrategyOptions options)
    : Strategy(configure("MirroredStrategy", devices.empty() ? default_devices() : parse_devices(devices),
                         std::move(options))) {}

std::vector<std::string> cpu_devices(int num_replicas) {
  if (num_replicas < 1)
    throw InvalidArgument("[devices] expected 1 or more replicas, but got " + std::to_string(num_replicas));
  std::vector<std::string> names;
  for (const auto& device : logical_cpus(num_replicas)) names.push_back(device.str());
  return names;
}

OneDeviceStrategy::OneDeviceStrategy(const std::string& device, StrategyOptions options)
    : Strategy(configure("OneDeviceStrategy", {parse_device(device)}, std::move(options))) {}

DefaultStrategy::DefaultStrategy(StrategyOptions options)
    : Strategy(configure("DefaultStrategy", {default_devices()[0]}, std::move(options))) {}

std::unique_ptr<Strategy> get_strategy() {
  return std::make_unique<DefaultStrategy>();
}

}  // namespace lockstep
