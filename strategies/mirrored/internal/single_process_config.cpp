#include "lockstep/strategies/mirrored/internal/single_process_config.h"

#include <memory>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Returns null if the devices decide.
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
    case CommunicationImplementation::kRing:  // these need several processes
    case CommunicationImplementation::kExchange:
      return std::make_shared<HierarchicalCopyAllReduce>();
    case CommunicationImplementation::kAuto:
      break;
  }
  return options.cross_device_ops;
}

/// Throws InvalidArgument if the op was asked for and cannot compress gradients so.
void check_compression(const std::shared_ptr<CrossDeviceOps>& ops, const CommunicationOptions& options) {
  const auto* backend = dynamic_cast<const BackendAllReduce*>(ops.get());
  if (backend != nullptr) backend->check_compression(options.gradient_compression);
}

}  // namespace

Devices default_devices() {
  Devices devices = accelerators();
  return devices.empty() ? logical_cpus(1) : devices;
}

Devices devices_of_replicas(const std::string& strategy, const std::vector<std::string>& names,
                            int replicas_per_device) {
  if (replicas_per_device < 1) {
    throw InvalidArgument("[" + strategy + "] expected 1 or more replicas a device, but got " +
                          std::to_string(replicas_per_device));
  }
  Devices replica_devices;
  for (const auto& device : names.empty() ? default_devices() : parse_devices(names)) {
    replica_devices.insert(replica_devices.end(), static_cast<size_t>(replicas_per_device), device);
  }
  return replica_devices;
}

StrategyConfig single_process_config(std::string name, Devices devices, StrategyOptions options) {
  options.communication.check();
  options.buckets = options.communication.packed(options.buckets);
  StrategyConfig config;
  config.name = std::move(name);
  config.devices = std::move(devices);
  config.cross_device_ops = choose_ops(config.name, options);
  check_compression(config.cross_device_ops, options.communication);
  config.intra_op_threads = options.intra_op_threads;
  config.seed = options.seed;
  config.mesh = options.mesh;
  config.sharding = options.sharding;
  config.replica_weights = options.replica_weights;
  config.buckets = options.buckets;
  config.gradient_compression = options.communication.gradient_compression;
  config.timeout = options.communication.timeout.value_or(options.timeout);
  return config;
}

}  // namespace lockstep
