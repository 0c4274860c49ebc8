#include <cuda_runtime_api.h>

#include <array>

#include "lockstep/runtime/devices/internal/device_location.h"
#include "lockstep/runtime/devices/internal/machine_topology.h"

namespace lockstep {

Cpus cpus_near(c10::Device gpu) {
  static const MachineTopology machine;
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu.index()) != cudaSuccess) {
    cudaGetLastError();  // else the next call that looks for errors would report this one
    return {};
  }
  return machine.cpus_near(bus_id.data());
}

}  // namespace lockstep
