#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

namespace lockstep {

/// The devices of a TPUStrategy.
struct TPUOptions {
  /// Names of devices of this process, spelled as for MirroredStrategy. Empty: all that the plugin has, or
  /// with several workers on a machine the one of the worker's local rank.
  std::vector<std::string> devices;
  /// Number of consecutive devices that make up a replica. It computes on the first of them;
  /// TPUStrategy::assign_to_logical_device() reaches the others.
  int devices_per_replica = 1;
};

/// A MultiWorkerMirroredStrategy over devices that LibTorch knows by a plugin (its PrivateUse1), such as
/// torch_tpu's: one process with several devices, or several processes with one or more each. The program
/// must have loaded the plugin. Lockstep has never run on a TPU; docs/tpu.md tells what has been run on what.
///
/// Gradients are summed in the host's memory. If the plugin has collectives of its own as a c10d::Backend,
/// pass them as StrategyOptions::cross_device_ops by a BackendAllReduce.
///
/// Example:
///
///     TPUStrategy strategy;
///     auto model = strategy.scope([](ReplicaContext&) { return SimpleCnn(); });
///     std::cout << strategy.describe() << '\n';
class TPUStrategy : public MultiWorkerMirroredStrategy {
 public:
  /// Takes the cluster that resolve_cluster() finds if `resolver` is null. Blocks until all workers have
  /// joined. Throws as MultiWorkerMirroredStrategy. Throws InvalidArgument, before it uses a device: if no
  /// plugin is loaded, if the plugin has no device, if a named device is not the plugin's, and if
  /// `devices_per_replica` is below 1 or does not divide the number of devices.
  explicit TPUStrategy(std::shared_ptr<const ClusterResolver> resolver = nullptr, TPUOptions tpus = {},
                       const StrategyOptions& options = {},
                       const ClusterOptions& cluster = cluster_options(process_environment()));

  /// Returns the devices of each local replica, the one on which it computes first.
  const std::vector<Devices>& devices_of_replicas() const { return devices_of_replicas_; }

  /// Returns `tensor` on the calling replica's device number `logical_device`, from 0. If it is there
  /// already, returns `tensor` itself; else a copy, through which gradients flow back. Call it in a replica
  /// function. Throws InvalidArgument if the replica has no such device.
  torch::Tensor assign_to_logical_device(const ReplicaContext& replica, const torch::Tensor& tensor,
                                         int logical_device) const;

  /// Does not compile; the error states what to use.
  template <typename... Arguments>
  torch::Tensor split_to_logical_devices(Arguments&&...) const {
    static_assert(
        sizeof...(Arguments) == static_cast<size_t>(-1),
        "TPUStrategy does not split a tensor over the devices of a replica, as LibTorch's operators compute "
        "on one device. Make each of these devices a rank of a mesh, and cut layers along its axes with the "
        "function parallelize()");
    return {};
  }

 private:
  struct Selection {
    std::shared_ptr<const ClusterResolver> resolver;
    std::vector<Devices> replicas;
  };
  static Selection select(std::shared_ptr<const ClusterResolver> resolver, const TPUOptions& tpus);
  TPUStrategy(Selection selection, const StrategyOptions& options, const ClusterOptions& cluster);

  std::vector<Devices> devices_of_replicas_;  // of each local replica
};

}  // namespace lockstep
