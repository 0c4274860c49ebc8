#include "lockstep/runtime/devices/internal/machine_topology.h"

#include <hwloc.h>

#include <stdexcept>

#if HWLOC_API_VERSION < 0x00020100
#error "expected hwloc 2.1 or newer"
#endif

namespace lockstep {
namespace {

/// Returns null if hwloc fails to initialise.
std::shared_ptr<hwloc_topology> make_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  std::shared_ptr<hwloc_topology> owner(topology, hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // These plugins would start the drivers of GPUs, or talk to an X server, to learn more than is asked for.
  // The last one finds what hwloc itself finds in /sys, by a library that never frees what it allocates.
  for (const char* component : {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl", "pci"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  return owner;
}

}  // namespace

MachineTopology::MachineTopology() : topology_(make_topology()) {
  if (topology_ && hwloc_topology_load(topology_.get()) != 0) topology_ = nullptr;
}

MachineTopology::MachineTopology(const std::string& xml) : topology_(make_topology()) {
  // The size includes the final zero.
  if (!topology_ ||
      hwloc_topology_set_xmlbuffer(topology_.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(topology_.get()) != 0)
    throw std::invalid_argument("MachineTopology: expected a machine in hwloc's XML format");
}

std::vector<int> MachineTopology::cpus_near(const std::string& pci_bus_id) const {
  if (!topology_) return {};
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology_.get(), pci_bus_id.c_str());
  if (device == nullptr) return {};
  const hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(topology_.get(), device);
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(parent->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(parent->cpuset, cpu))
    cpus.push_back(cpu);
  return cpus;
}

}  // namespace lockstep
