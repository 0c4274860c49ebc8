// Linked with --wrap for logical_cpus(), this gives the suites of other folders test devices in the place of
// logical CPUs. So they train on a device behind a plugin, and LibTorch's CPU stays the oracle.
#include "lockstep/runtime/devices/device.h"
#include "lockstep/tests/device/test_device.h"

namespace lockstep {
namespace {

/// Enough for the suites' largest number of replicas.
const bool has_all_devices = [] {
  test_device::set_device_count(test_device::kMaxDevices);
  return true;
}();

}  // namespace

// The linker's names of the function that callers reach, and of the one that they would reach without it.
std::vector<LogicalDevice> test_devices(int count) __asm__("__wrap__ZN8lockstep12logical_cpusEi");
std::vector<LogicalDevice> real_logical_cpus(int count) __asm__("__real__ZN8lockstep12logical_cpusEi");

std::vector<LogicalDevice> test_devices(int count) {
  std::vector<LogicalDevice> devices = real_logical_cpus(count);
  for (auto& device : devices) {
    if (device.index < test_device::kMaxDevices) device.type = c10::DeviceType::PrivateUse1;
  }
  return devices;
}

}  // namespace lockstep
