#include "lockstep/tests/device/test_device.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class TestDeviceIndices : public TestDevice {};

TEST_F(TestDeviceIndices, ATensorIsOnTheDeviceAskedFor) {
  for (int i = 0; i < kNumTestDevices; ++i) {
    const at::Device device("testdevice:" + std::to_string(i));
    EXPECT_EQ(device, test_device::device(i));
    EXPECT_EQ(torch::empty({2, 3}, device).device(), device);
    EXPECT_EQ(torch::empty({0}, device).device(), device);
    EXPECT_EQ(torch::ones({2}).to(device).device(), device);
    EXPECT_EQ(torch::ones({2}, device).add(1).device().str(), "testdevice:" + std::to_string(i));
  }
}

TEST_F(TestDeviceIndices, ADeviceThatDoesNotExistIsRefused) {
  EXPECT_THAT([] { torch::empty({1}, test_device::device(4)); },
              ThrowsMessage<c10::Error>(HasSubstr("there is no testdevice:4: the device count is 4")));
  EXPECT_THROW(c10::DeviceGuard(test_device::device(4)), c10::Error);
}

TEST_F(TestDeviceIndices, TheCurrentDeviceIsAThreadsOwn) {
  const c10::DeviceGuard guard(test_device::device(2));
  EXPECT_EQ(torch::empty({1}, at::Device(at::kPrivateUse1)).device(), test_device::device(2));
  std::thread([] {
    EXPECT_EQ(torch::empty({1}, at::Device(at::kPrivateUse1)).device(), test_device::device(0));
  }).join();
}

TEST_F(TestDeviceIndices, LibTorchFindsItAsTheAccelerator) {
  EXPECT_EQ(at::accelerator::getAccelerator(), at::kPrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), kNumTestDevices);
  EXPECT_EQ(at::accelerator::exchangeDevice(3), 0);
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 3);
  at::accelerator::setDeviceIndex(0);
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 0);
}

TEST_F(TestDeviceIndices, TheCountCanBeSetBeforeTheFirstUseAlone) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process in which nothing was used
  EXPECT_EXIT(
      {
        test_device::set_device_count(2);
        const bool has_second = torch::empty({1}, test_device::device(1)).device().index() == 1;
        bool has_third = true;
        try {
          torch::empty({1}, test_device::device(2));
        } catch (const c10::Error&) {
          has_third = false;
        }
        std::_Exit(at::accelerator::deviceCount() == 2 && has_second && !has_third ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  torch::empty({1}, test_device::device(0));
  EXPECT_THROW(test_device::set_device_count(2), c10::Error);
}

TEST_F(TestDeviceIndices, OnlyUsedDevicesHaveAContext) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const auto& hooks = at::globalContext().getAcceleratorHooksInterface(at::kPrivateUse1);
        const bool had_none = !hooks.hasPrimaryContext(0) && !hooks.hasPrimaryContext(1);
        torch::empty({1}, test_device::device(1));
        std::_Exit(had_none && !hooks.hasPrimaryContext(0) && hooks.hasPrimaryContext(1) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
