// Names, counts and abilities of a plugin's devices, by the four of the test device.
#include <gmock/gmock.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/devices/internal/allocated_memory.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/devices/internal/random_state.h"
#include "lockstep/runtime/devices/pinned_memory.h"
#include "lockstep/tests/device/test_device_test_support.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class DevicesOfAPlugin : public TestDevice {};

std::string refusal_of_name(const std::string& name) {
  return message_of<InvalidArgument>([&] { parse_device(name); });
}

TEST_F(DevicesOfAPlugin, AreNamedAsThePluginIs) {
  const LogicalDevice third{c10::DeviceType::PrivateUse1, 2};
  EXPECT_EQ(third.str(), "testdevice:2");
  EXPECT_EQ(third.torch_device(), test_device::device(2));
  for (const char* name : {"testdevice:2", "TestDevice:2", "/testdevice:2", "/device:testdevice:2",
                           "privateuseone:2", "accelerator:2"}) {
    EXPECT_EQ(parse_device(name), third) << name;
  }
  EXPECT_EQ(parse_device("testdevice"), (LogicalDevice{c10::DeviceType::PrivateUse1, 0}));
  EXPECT_TRUE(third.is_accelerator());
  EXPECT_FALSE(third.is_cuda());
}

TEST_F(DevicesOfAPlugin, AreCountedAndListedAfterTheCpu) {
  if (num_gpus() > 0) GTEST_SKIP() << "a GPU is the accelerator here";
  EXPECT_EQ(num_devices(c10::DeviceType::PrivateUse1), kNumTestDevices);
  EXPECT_EQ(accelerator(), c10::DeviceType::PrivateUse1);
  EXPECT_EQ(accelerators().size(), 4u);
  EXPECT_EQ(available_devices(), "cpu:N (any N), testdevice:0, testdevice:1, testdevice:2, testdevice:3");
}

TEST_F(DevicesOfAPlugin, AreRefusedByNameIfThereAreFewer) {
  EXPECT_THAT(refusal_of_name("testdevice:4"),
              HasSubstr("there is no such testdevice device, 4 can be used"));
  EXPECT_THAT(refusal_of_name("xpu:0"), HasSubstr("LibTorch has no backend for it in this process"));
  EXPECT_THAT(refusal_of_name("tpu:0"), HasSubstr("but got 'tpu'; available: cpu:N (any N)"));
}

TEST_F(DevicesOfAPlugin, HaveTheAbilitiesThatTheBackendShows) {
  const DeviceTraits& traits = device_traits(c10::DeviceType::PrivateUse1);
  EXPECT_TRUE(traits.has_stream_pool);
  EXPECT_TRUE(traits.has_events);
  EXPECT_TRUE(traits.has_float64);
  EXPECT_TRUE(traits.has_pinned_memory);
  EXPECT_EQ(widest_float(test_device::device(1)), torch::kDouble);
  EXPECT_NO_THROW(check_index_is_kept({c10::DeviceType::PrivateUse1, 3}));
}

TEST_F(DevicesOfAPlugin, TakePinnedMemoryOfTheirOwn) {
  const auto values = torch::arange(6.0).reshape({2, 3}).t();
  const auto pinned = pinned_for(values, test_device::device(0));
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(torch::equal(pinned, values));
  EXPECT_TRUE(pinned_for(pinned, test_device::device(0)).is_same(pinned));
  EXPECT_TRUE(pinned_for(values, torch::kCPU).is_same(values));
}

TEST_F(DevicesOfAPlugin, ShowTheBytesOfTheirTensors) {
  EXPECT_FALSE(allocated_on(torch::kCPU));
  const auto before = torch::zeros({1}, test_device::device(1));
  const auto bytes = allocated_on(test_device::device(1)).value();
  const auto more = torch::zeros({1 << 20}, test_device::device(1));
  EXPECT_EQ(allocated_on(test_device::device(1))->now - bytes.now, 4 << 20);
  EXPECT_GE(allocated_on(test_device::device(1))->peak, bytes.now + (4 << 20));
}

TEST_F(DevicesOfAPlugin, MakeGeneratorsOfTheirOwn) {
  auto first = new_generator(test_device::device(2));
  auto second = new_generator(test_device::device(2));
  EXPECT_EQ(first.device(), test_device::device(2));
  first.set_current_seed(5);
  second.set_current_seed(5);
  const auto drawn = [](at::Generator& generator) {
    return torch::empty({8}, test_device::device(2)).uniform_(0, 1, generator).cpu();
  };
  const auto values = drawn(first);
  EXPECT_TRUE(torch::equal(drawn(second), values));
  EXPECT_FALSE(torch::equal(drawn(second), values));
}

}  // namespace
}  // namespace lockstep
