#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/benchmarks/emulation/emulated_links.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep::benchmarks {

/// Moves values between the replicas of this process as HierarchicalCopyAllReduce does, and has each
/// collective and message take the time of emulated links besides: waits end when it would have ended there.
/// A collective begins when the devices of all ranks have come to it, and no earlier than the one before it
/// in its group has ended. A device computes meanwhile.
class EmulatedCommunication : public CrossDeviceOps {
 public:
  explicit EmulatedCommunication(std::shared_ptr<EmulatedMachines> machines)
      : CrossDeviceOps(/*num_packs=*/0), machines_(std::move(machines)) {}

  std::string name() const override { return "EmulatedCommunication"; }
  void check_devices(const Devices&) const override {}
  /// Among all ranks, of which there are as many as devices.
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  std::unique_ptr<CollectiveChannel> make_grouped_channel(const Devices& devices, const ReplicaGroups& groups,
                                                          std::chrono::milliseconds timeout) const override;

 private:
  std::shared_ptr<EmulatedMachines> machines_;
};

}  // namespace lockstep::benchmarks
