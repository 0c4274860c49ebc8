#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Uses a backend's collectives with the replicas of all workers as ranks. make_channel() and the like are
/// collectives of the workers. Reductions between runs cover only this process's values.
class WorkerBackendAllReduce : public CrossDeviceOps {
 public:
  WorkerBackendAllReduce(std::shared_ptr<const BackendAllReduce> backend,
                         std::shared_ptr<WorkerGroup> workers)
      : CrossDeviceOps(PackingOptions().num_packs),
        backend_(std::move(backend)),
        workers_(std::move(workers)) {}
  std::string name() const override { return backend_->name(); }
  void check_devices(const Devices& devices) const override { backend_->check_devices(devices); }
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_grouped_channel(const Devices& devices, const ReplicaGroups& groups,
                                                          std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_gradient_channel(
      const Devices& devices, std::chrono::milliseconds timeout,
      const std::shared_ptr<GradientCompression>& compression) const override;

 private:
  std::unique_ptr<CollectiveChannel> open(BackendChannelConfig config) const;
  BackendChannelConfig over_workers(const Devices& devices, std::chrono::milliseconds timeout) const;

  std::shared_ptr<const BackendAllReduce> backend_;
  std::shared_ptr<WorkerGroup> workers_;
};

}  // namespace lockstep
