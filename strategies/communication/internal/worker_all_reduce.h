#pragma once

#include <memory>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Sums over the worker processes of a job: within a process through memory that its replicas share, between
/// processes as the group's transport does, with one rank per process. Works everywhere; values of GPUs pass
/// through the host. make_channel() and the like are collectives of the workers. Reductions between runs
/// cover only this process's values.
class WorkerAllReduce : public CrossDeviceOps {
 public:
  explicit WorkerAllReduce(std::shared_ptr<WorkerGroup> workers);
  /// Returns "RingAllReduce" over Gloo, which sums in a ring, and otherwise "ExchangeAllReduce".
  std::string name() const override;
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_grouped_channel(const Devices& devices, const ReplicaGroups& groups,
                                                          std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_gradient_channel(
      const Devices& devices, std::chrono::milliseconds timeout,
      const std::shared_ptr<GradientCompression>& compression) const override;

 private:
  std::shared_ptr<WorkerGroup> workers_;
  std::shared_ptr<Mutex> compressing_;  // for a compression that several channels use
};

}  // namespace lockstep
