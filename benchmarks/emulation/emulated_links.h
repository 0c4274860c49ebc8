#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/benchmarks/emulation/emulated_device.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::benchmarks {

enum class CollectiveKind : uint8_t { kAllReduce, kGather, kScatter, kBroadcast, kExchange };

/// The links of emulated machines. Each device has a port to the others of its machine, and each machine one
/// to the other machines, which its devices share. A transfer that begins while a port is busy has half of it
/// until the others have ended.
///
/// Thread-safe.
class EmulatedLinks {
 public:
  using Moment = EmulatedDevice::Moment;

  explicit EmulatedLinks(const PlannedCluster& cluster);

  /// Returns the moment at which a collective among the ranks ends that could begin at another one: rings
  /// (all_reduce_model.h) within each machine, and then between the machines. `bytes` are those of a rank's
  /// tensor, or of the one that is gathered or scattered.
  Moment collective(CollectiveKind kind, const std::vector<int>& ranks, double bytes, Moment begin);
  /// Returns the moment at which a message arrives.
  Moment message(int from, int to, double bytes, Moment begin);

 private:
  /// Something that goes over several ports at the same time.
  struct Transfer {
    double steps = 0;  // that each take the latency
    double bytes = 0;  // over each port
  };
  static Moment carry(const Transfer& transfer, const DeviceLink& link, const std::vector<Moment*>& ports,
                      Moment begin);
  size_t machine_of(int rank) const;

  const DeviceLink within_, between_;
  const int64_t devices_per_machine_;
  Mutex mutex_;
  std::vector<Moment> device_ports_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Moment> machine_ports_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Machines with devices that are slower than this one.
struct EmulatedMachines {
  explicit EmulatedMachines(const PlannedCluster& cluster)
      : links(cluster), devices(static_cast<size_t>(cluster.devices), EmulatedDevice(cluster)) {}

  EmulatedDevice& device(int rank) { return devices[static_cast<size_t>(rank)]; }

  EmulatedLinks links;
  std::vector<EmulatedDevice> devices;  ///< by rank
};

}  // namespace lockstep::benchmarks
