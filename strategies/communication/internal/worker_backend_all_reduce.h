#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Uses a backend's collectives with the replicas of all workers as ranks. make_channel() is a collective of
/// the workers. Reductions between runs cover only this process's values.
class WorkerBackendAllReduce : public CrossDeviceOps {
 public:
  /// Gradients are rounded to `wire_dtype`; none: they are sent unchanged.
  WorkerBackendAllReduce(std::shared_ptr<const BackendAllReduce> backend,
                         std::shared_ptr<WorkerGroup> workers, std::optional<at::ScalarType> wire_dtype)
      : CrossDeviceOps(PackingOptions().num_packs),
        backend_(std::move(backend)),
        workers_(std::move(workers)),
        wire_dtype_(wire_dtype) {}
  std::string name() const override { return backend_->name(); }
  void check_devices(const Devices& devices) const override { backend_->check_devices(devices); }
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_gradient_channel(const Devices& devices,
                                                           std::chrono::milliseconds timeout) const override;

 private:
  std::unique_ptr<CollectiveChannel> open(BackendChannelConfig config) const;
  BackendChannelConfig over_workers(const Devices& devices, std::chrono::milliseconds timeout) const;

  std::shared_ptr<const BackendAllReduce> backend_;
  std::shared_ptr<WorkerGroup> workers_;
  std::optional<at::ScalarType> wire_dtype_;
};

}  // namespace lockstep
