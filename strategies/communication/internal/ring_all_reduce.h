#pragma once

#include <memory>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Sums over the worker processes of a job: within each by memory that its replicas share, between them by
/// Gloo, whose all-reduce is a ring, with one rank a process. Works everywhere; GPUs' values go by the host.
/// make_channel() is a collective of the workers. Reductions between runs are of this process's values.
class RingAllReduce : public CrossDeviceOps {
 public:
  /// `compression` is for gradients; null: they travel as they are.
  RingAllReduce(std::shared_ptr<WorkerGroup> workers,
                const std::shared_ptr<GradientCompression>& compression);
  std::string name() const override { return "RingAllReduce"; }
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_gradient_channel(const Devices& devices,
                                                           std::chrono::milliseconds timeout) const override;

 private:
  std::shared_ptr<WorkerGroup> workers_;
  std::shared_ptr<GradientCompression> compression_;
};

}  // namespace lockstep
