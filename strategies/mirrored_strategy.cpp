#include "lockstep/strategies/mirrored_strategy.h"

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

/// Each device once for each of its replicas.
Devices places_of_replicas(const std::string& strategy, const Devices& devices, int replicas_per_device) {
  if (replicas_per_device < 1) {
    throw InvalidArgument("[" + strategy + "] expected 1 or more replicas a device, but got " +
                          std::to_string(replicas_per_device));
  }
  Devices places;
  for (const auto& device : devices) {
    places.insert(places.end(), static_cast<size_t>(replicas_per_device), device);
  }
  return places;
}

/// Null: chosen for the devices.
std::shared_ptr<CrossDeviceOps> choose_ops(const std::string& strategy, const StrategyOptions& options) {
  const auto implementation = options.communication.implementation;
  if (options.cross_device_ops && implementation != CommunicationImplementation::kAuto) {
    throw InvalidArgument("[" + strategy +
                          "] expected a cross-device op or a communication implementation, "
                          "but got both: " +
                          options.cross_device_ops->name() + " and " + communication_name(implementation));
  }
  switch (implementation) {
    case CommunicationImplementation::kNccl:
      return std::make_shared<NcclAllReduce>();
    case CommunicationImplementation::kRing:  // within one process there is nothing to go round
      return std::make_shared<HierarchicalCopyAllReduce>();
    case CommunicationImplementation::kAuto:
      break;
  }
  return options.cross_device_ops;
}

StrategyConfig configure(std::string name, Devices devices, StrategyOptions options) {
  options.communication.check();
  if (options.communication.bytes_per_pack > 0)
    options.buckets.bucket_bytes = options.communication.bytes_per_pack;
  StrategyConfig config;
  config.name = std::move(name);
  config.devices = std::move(devices);
  config.cross_device_ops = choose_ops(config.name, options);
  config.intra_op_threads = options.intra_op_threads;
  config.seed = options.seed;
  config.buckets = options.buckets;
  config.timeout = options.communication.timeout.value_or(options.timeout);
  return config;
}

Devices one_place(const std::string& strategy, const LogicalDevice& device, const StrategyOptions& options) {
  if (options.replicas_per_device == 1) return {device};
  throw InvalidArgument("[" + strategy + "] expected 1 replica a device, but got " +
                        std::to_string(options.replicas_per_device) + "; MirroredStrategy takes more");
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
    : Strategy(configure(
          "MirroredStrategy",
          places_of_replicas("MirroredStrategy", devices.empty() ? default_devices() : parse_devices(devices),
                             options.replicas_per_device),
          options)) {}

std::vector<std::string> cpu_devices(int num_replicas) {
  if (num_replicas < 1)
    throw InvalidArgument("[devices] expected 1 or more replicas, but got " + std::to_string(num_replicas));
  std::vector<std::string> names;
  for (const auto& device : logical_cpus(num_replicas)) names.push_back(device.str());
  return names;
}

OneDeviceStrategy::OneDeviceStrategy(const std::string& device, StrategyOptions options)
    : Strategy(configure("OneDeviceStrategy", one_place("OneDeviceStrategy", parse_device(device), options),
                         options)) {}

DefaultStrategy::DefaultStrategy(StrategyOptions options)
    : Strategy(configure("DefaultStrategy", one_place("DefaultStrategy", default_devices()[0], options),
                         options)) {}

std::unique_ptr<Strategy> get_strategy() {
  return std::make_unique<DefaultStrategy>();
}

}  // namespace lockstep
