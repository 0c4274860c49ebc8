#pragma once

#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace lockstep {

/// The machine's CPUs and the PCI devices near them, as hwloc finds them. Thread-safe.
///
/// Example:
///
///     restrict_this_thread(MachineTopology().cpus_near("0000:3b:00.0"));
class MachineTopology {
 public:
  /// Looks at this machine; takes tens of milliseconds. Finds nothing if hwloc fails.
  MachineTopology();
  /// Reads a description of a machine in hwloc's XML format. Throws std::invalid_argument if it is not one.
  explicit MachineTopology(const std::string& xml);

  /// Returns the numbers of the CPUs nearest to the device, in ascending order, such as those of its NUMA
  /// node. Empty if the device is not known. `pci_bus_id` is domain:bus:device.function, in hexadecimal
  /// digits of either case.
  std::vector<int> cpus_near(const std::string& pci_bus_id) const;

 private:
  std::shared_ptr<hwloc_topology> topology_;  // null if hwloc failed
};

}  // namespace lockstep
