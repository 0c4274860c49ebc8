#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// One step of a small network on `device`.
torch::Tensor step_on(at::Device device) {
  const auto x = torch::ones({4, 3}, device);
  auto weight = torch::full({2, 3}, 0.5, torch::TensorOptions(device).requires_grad(true));
  torch::relu(torch::linear(x, weight)).sum().backward();
  return weight.grad();
}

class TestDeviceErrors : public TestDevice {};

TEST_F(TestDeviceErrors, AnOperatorInMidStepFailsAndTheDeviceStaysLost) {
  const auto before = test_device::operators_begun(2);
  const auto expected = step_on(test_device::device(2)).cpu();
  const auto operators = test_device::operators_begun(2) - before;
  ASSERT_GE(operators, 5);  // the factories, linear, relu, sum and their gradients
  const int64_t number = operators / 2;
  test_device::fail_at_operator(2, number, test_device::Fault::kLost);
  EXPECT_THAT([] { step_on(test_device::device(2)); },
              ThrowsMessage<c10::AcceleratorError>(HasSubstr("testdevice:2 is lost")));
  EXPECT_EQ(test_device::operators_begun(2), before + operators + number);
  const c10::impl::VirtualGuardImpl guard(at::kPrivateUse1);
  EXPECT_THROW(torch::empty({1}, test_device::device(2)), c10::AcceleratorError);
  EXPECT_THROW(guard.synchronizeDevice(2), c10::AcceleratorError);
  EXPECT_THROW(guard.getStream(test_device::device(2)).query(), c10::AcceleratorError);
  EXPECT_THROW(c10::Event(at::kPrivateUse1).record(guard.getStream(test_device::device(2))),
               c10::AcceleratorError);
  EXPECT_TRUE(torch::equal(step_on(test_device::device(1)).cpu(), expected));
  test_device::repair(2);
  EXPECT_TRUE(torch::equal(step_on(test_device::device(2)).cpu(), expected));
}

TEST_F(TestDeviceErrors, EveryOperatorOfAStepCanFail) {
  const auto before = test_device::operators_begun(0);
  step_on(test_device::device(0));
  const auto operators = test_device::operators_begun(0) - before;
  for (int64_t number = 1; number <= operators; ++number) {
    test_device::fail_at_operator(0, number, test_device::Fault::kLost);
    EXPECT_THROW(step_on(test_device::device(0)), c10::AcceleratorError) << number;
    test_device::repair(0);
  }
  test_device::fail_at_operator(0, operators + 1, test_device::Fault::kLost);
  EXPECT_NO_THROW(step_on(test_device::device(0)));
}

TEST_F(TestDeviceErrors, AnOperatorThatRunsOutOfMemoryLeavesTheDeviceUsable) {
  test_device::fail_at_operator(1, 3, test_device::Fault::kOutOfMemory);
  EXPECT_THAT([] { step_on(test_device::device(1)); },
              ThrowsMessage<c10::OutOfMemoryError>(HasSubstr("testdevice:1 is out of memory")));
  EXPECT_NO_THROW(step_on(test_device::device(1)));
}

TEST_F(TestDeviceErrors, ADeviceMayFailInACopyFromAnother) {
  const auto x = torch::ones({4}, test_device::device(0));
  test_device::fail_at_operator(1, 1, test_device::Fault::kLost);
  EXPECT_THROW(x.to(test_device::device(1)), c10::AcceleratorError);
  EXPECT_NO_THROW(x.to(test_device::device(2)));
}

TEST_F(TestDeviceErrors, TensorsOfDifferentDevicesDoNotMix) {
  const auto x = torch::ones({4}, test_device::device(0));
  EXPECT_THAT([&] { torch::add(x, torch::ones({4}, test_device::device(1))); },
              ThrowsMessage<c10::Error>(HasSubstr("Expected all tensors to be on the same device")));
  EXPECT_THAT([&] { torch::add(x, torch::ones({4})); },
              ThrowsMessage<c10::Error>(HasSubstr("Expected all tensors to be on the same device")));
  EXPECT_THAT(
      [&] {
        torch::embedding(x.view({2, 2}), torch::zeros({1}, torch::kLong));
      },
      ThrowsMessage<c10::Error>(HasSubstr("Expected all tensors to be on the same device")));
  EXPECT_TRUE(torch::equal(torch::add(x, torch::tensor(2.0f)).cpu(), torch::full({4}, 3.0f)));
}

}  // namespace
}  // namespace lockstep
