#include "lockstep/strategies/mirrored/tpu_strategy.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {
namespace {

constexpr const char* kTpuStrategy = "TPUStrategy";
constexpr auto kPlugin = c10::DeviceType::PrivateUse1;

/// Throws InvalidArgument unless the plugin has devices. No tensor is made before, as a plugin without
/// hardware may abort the process or never return.
void check_plugin() {
  if (!c10::impl::hasDeviceGuardImpl(kPlugin)) {
    throw InvalidArgument(c10::str(
        "[", kTpuStrategy, "] expected a plugin with devices, but LibTorch has none in this process: ",
        "the program must load it first, such as by torch_tpu::TorchTpu, and Lockstep's own programs load "
        "the library in LOCKSTEP_DEVICE_PLUGIN"));
  }
  if (num_devices(kPlugin) == 0) {
    throw InvalidArgument(c10::str("[", kTpuStrategy, "] expected a ", device_type_noun(kPlugin),
                                   ", but its plugin finds no hardware on this machine"));
  }
}

std::vector<std::string> names_of(const std::vector<Devices>& replicas) {
  std::vector<std::string> names;
  for (const auto& devices : replicas) names.push_back(devices.front().str());
  return names;
}

}  // namespace

TPUStrategy::Selection TPUStrategy::select(std::shared_ptr<const ClusterResolver> given,
                                           const TPUOptions& tpus) {
  check_plugin();
  Selection selection{resolved(std::move(given)), {}};
  const Devices devices =
      devices_of_worker(kTpuStrategy, *selection.resolver, tpus.devices, devices_of(kPlugin));
  for (const auto& device : devices) {
    if (device.type == kPlugin) continue;
    throw InvalidArgument(c10::str("[", kTpuStrategy, "] expected ", device_type_noun(kPlugin),
                                   "s only, but got ", device, ", which MirroredStrategy takes"));
  }
  const auto per_replica = static_cast<int64_t>(tpus.devices_per_replica);
  const auto count = static_cast<int64_t>(devices.size());
  if (per_replica > 1 && count == 1) {
    throw InvalidArgument(
        c10::str("[", kTpuStrategy,
                 "] expected 1 device a replica, since this process has one device, but got ", per_replica));
  }
  if (per_replica < 1 || count % per_replica != 0) {
    throw InvalidArgument(c10::str("[", kTpuStrategy,
                                   "] expected a number of devices a replica that divides ", count,
                                   ", but got ", per_replica));
  }
  for (auto begin = devices.begin(); begin != devices.end(); begin += per_replica)
    selection.replicas.emplace_back(begin, begin + per_replica);
  return selection;
}

TPUStrategy::TPUStrategy(std::shared_ptr<const ClusterResolver> resolver, TPUOptions tpus,
                         const StrategyOptions& options, const ClusterOptions& cluster)
    : TPUStrategy(select(std::move(resolver), tpus), options, cluster) {}

TPUStrategy::TPUStrategy(Selection selection, const StrategyOptions& options, const ClusterOptions& cluster)
    : MultiWorkerMirroredStrategy(kTpuStrategy, selection.resolver, names_of(selection.replicas), options,
                                  cluster) {
  for (const auto& devices : selection.replicas) {
    devices_of_replicas_.insert(devices_of_replicas_.end(), static_cast<size_t>(options.replicas_per_device),
                                devices);
  }
}

torch::Tensor TPUStrategy::assign_to_logical_device(const ReplicaContext& replica,
                                                    const torch::Tensor& tensor, int logical_device) const {
  const Devices& devices = devices_of_replicas_.at(static_cast<size_t>(replica.local_replica_id()));
  if (logical_device < 0 || logical_device >= static_cast<int>(devices.size())) {
    throw InvalidArgument(c10::str(
        "[", kTpuStrategy, "] assign_to_logical_device: expected a logical device below ", devices.size(),
        ", as a replica has ", devices.size(), devices.size() == 1 ? " device" : " devices", ", but got ",
        logical_device, "; TPUOptions::devices_per_replica gives it more if the process has them"));
  }
  return tensor.to(devices[static_cast<size_t>(logical_device)].torch_device());
}

}  // namespace lockstep
