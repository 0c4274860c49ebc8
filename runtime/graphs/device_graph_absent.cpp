#include "lockstep/runtime/graphs/device_graph.h"

namespace lockstep {

C10_DEFINE_REGISTRY(DeviceGraphPoolRegistry, DeviceGraphPool, c10::Device, const at::Generator&)

std::unique_ptr<DeviceGraphPool> make_device_graph_pool(c10::Device device, const at::Generator& generator) {
  return DeviceGraphPoolRegistry()->Create("CUDA", device, generator);
}

}  // namespace lockstep
