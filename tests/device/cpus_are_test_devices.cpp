// Linked with --wrap for logical_cpus(), this gives the suites of other folders test devices in the place of
// logical CPUs. So they train on a device behind a plugin, and LibTorch's CPU stays the oracle.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/tests/device/test_device.h"

namespace lockstep {
namespace {

/// Fails each test that leaves work on devices unordered, and a program none of whose tests computes on one.
class DeviceUse final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    test_device::forget();
    operators_before_ = operators_begun();
  }

  void OnTestEnd(const testing::TestInfo&) override {
    ++num_tests_;
    if (operators_begun() > operators_before_) ++num_tests_on_devices_;
    for (const std::string& race : test_device::races()) ADD_FAILURE() << race;
  }

  void OnTestIterationEnd(const testing::UnitTest&, int) override {
    std::cout << "[  DEVICE  ] " << num_tests_on_devices_ << " of " << num_tests_
              << " tests computed on test devices" << std::endl;
    EXPECT_GT(num_tests_on_devices_, 0);
  }

  static int64_t operators_begun() {
    int64_t sum = 0;
    for (int device = 0; device < test_device::kMaxDevices; ++device)
      sum += test_device::operators_begun(device);
    return sum;
  }

  int64_t operators_before_ = 0;
  int num_tests_ = 0;
  int num_tests_on_devices_ = 0;
};

const bool is_set_up = [] {
  // Enough for the suites' largest number of replicas.
  test_device::set_device_count(test_device::kMaxDevices);
  testing::UnitTest::GetInstance()->listeners().Append(new DeviceUse);  // GoogleTest deletes it
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
