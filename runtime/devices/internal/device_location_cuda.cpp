#include <cuda_runtime_api.h>

#include <array>

#include "lockstep/runtime/devices/internal/cpu_affinity.h"
#include "lockstep/runtime/devices/internal/device_location.h"

namespace lockstep {

void keep_this_thread_near(c10::Device gpu) {
  static const MachineTopology machine;
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu.index()) != cudaSuccess) {
    cudaGetLastError();  // else the next call that looks for errors would report this one
    return;
  }
  restrict_this_thread(machine.cpus_near(bus_id.data()));
}

}  // namespace lockstep
