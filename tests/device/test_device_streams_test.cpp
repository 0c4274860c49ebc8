#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const at::Device kFirst = test_device::device(0);
const at::Device kSecond = test_device::device(1);

c10::impl::VirtualGuardImpl guard_impl() {
  return c10::impl::VirtualGuardImpl(at::kPrivateUse1);
}

c10::Event recorded_on(const c10::Stream& stream) {
  c10::Event event(at::kPrivateUse1);
  event.record(stream);
  return event;
}

class TestDeviceStreams : public TestDevice {};

TEST_F(TestDeviceStreams, AThreadsStreamIsTheDefaultOneUntilItChangesIt) {
  const auto stream = guard_impl().getStreamFromGlobalPool(kFirst);
  EXPECT_EQ(guard_impl().getStream(kFirst), guard_impl().getDefaultStream(kFirst));
  EXPECT_NE(stream, guard_impl().getDefaultStream(kFirst));
  EXPECT_NE(stream, guard_impl().getStreamFromGlobalPool(kFirst));
  EXPECT_NE(stream, guard_impl().getNewStream(kFirst));
  const c10::StreamGuard guard(stream);
  EXPECT_EQ(guard_impl().getStream(kFirst), stream);
  EXPECT_EQ(guard_impl().getStream(kSecond), guard_impl().getDefaultStream(kSecond));
  std::thread([] {
    EXPECT_EQ(guard_impl().getStream(kFirst), guard_impl().getDefaultStream(kFirst));
  }).join();
}

TEST_F(TestDeviceStreams, WorkThatNoEventOrdersIsARace) {
  for (const bool waits : {true, false}) {
    test_device::forget();
    const auto writer = guard_impl().getStreamFromGlobalPool(kFirst);
    const auto reader = guard_impl().getNewStream(kFirst);
    torch::Tensor value;
    {
      const c10::StreamGuard guard(writer);
      value = torch::zeros({4}, kFirst);
    }
    if (waits) recorded_on(writer).block(reader);
    const c10::StreamGuard guard(reader);
    const auto doubled = value * 2;
    if (waits) {
      EXPECT_THAT(test_device::races(), IsEmpty());
    } else {
      EXPECT_THAT(test_device::races(),
                  ElementsAre(AllOf(HasSubstr("aten::mul reads"), HasSubstr("aten::zero_ writes"),
                                    HasSubstr("of testdevice:0"))));
    }
  }
}

TEST_F(TestDeviceStreams, MemoryFreedWhileAnotherStreamUsesItMustBeRecorded) {
  for (const bool is_recorded : {true, false}) {
    test_device::forget();
    const auto user = guard_impl().getStreamFromGlobalPool(kFirst);
    {
      auto value = torch::zeros({4}, kFirst);
      recorded_on(guard_impl().getStream(kFirst)).block(user);
      const c10::StreamGuard guard(user);
      const auto doubled = value * 2;
      if (is_recorded) value.record_stream(user);
    }
    const auto next = torch::empty({4}, kFirst);
    if (is_recorded) {
      EXPECT_THAT(test_device::races(), IsEmpty());
    } else {
      EXPECT_THAT(test_device::races(), ElementsAre(HasSubstr("taken again")));
    }
  }
}

TEST_F(TestDeviceStreams, ACopyBetweenDevicesIsOrderedOnBoth) {
  const auto value = torch::arange(4, torch::device(kFirst).dtype(torch::kFloat));
  const auto copy = value.to(kSecond);
  const auto back = (copy + 1).to(kFirst) + value;
  EXPECT_THAT(test_device::races(), IsEmpty());
  EXPECT_TRUE(torch::equal(back.cpu(), torch::arange(4, torch::kFloat) * 2 + 1));
}

TEST_F(TestDeviceStreams, WaitsOfTheHostAreCounted) {
  const auto value = torch::ones({4}, kFirst);
  const auto in_pinned_memory = torch::ones({4}).pin_memory();
  test_device::forget();
  in_pinned_memory.to(kFirst, /*non_blocking=*/true);
  value.add_(1);
  EXPECT_THAT(test_device::host_waits(), IsEmpty());
  value.sum().item<float>();
  EXPECT_THAT(test_device::host_waits(), ElementsAre("aten::_local_scalar_dense"));
  torch::ones({4}).to(kFirst, /*non_blocking=*/true);
  value.cpu();
  EXPECT_THAT(test_device::host_waits(), SizeIs(3));
  guard_impl().synchronizeDevice(0);
  EXPECT_THAT(test_device::host_waits(), testing::Contains("the device"));
}

TEST_F(TestDeviceStreams, ACopyToPinnedMemoryIsThereOnceTheHostHasWaited) {
  const auto value = torch::ones({4}, kFirst);
  auto copy = torch::empty({4}, torch::TensorOptions().pinned_memory(true));
  copy.copy_(value, /*non_blocking=*/true);
  const auto event = recorded_on(guard_impl().getStream(kFirst));
  EXPECT_TRUE(copy.isnan().all().item<bool>());
  event.synchronize();
  EXPECT_TRUE(copy.eq(1).all().item<bool>());
}

TEST_F(TestDeviceStreams, EventsTakeTheTime) {
  const auto stream = guard_impl().getStream(kFirst);
  c10::Event begin(at::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(at::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  EXPECT_TRUE(begin.query());
  begin.record(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record(stream);
  EXPECT_TRUE(end.query());
  EXPECT_GE(begin.elapsedTime(end), 20);
  EXPECT_LT(end.elapsedTime(begin), 0);
  const auto without_time = recorded_on(stream);
  EXPECT_THROW(begin.elapsedTime(without_time), c10::Error);
}

TEST_F(TestDeviceStreams, ASlowDeviceTakesLongerByItsFactor) {
  const auto value = torch::ones({300, 300}, kSecond);
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  constexpr double kFactor = 8;
  test_device::slow_down(1, kFactor);
  const auto begin = std::chrono::steady_clock::now();
  const double cpu_begin = cpu_seconds();
  for (int i = 0; i < 20; ++i) torch::mm(value, value);
  guard_impl().synchronizeDevice(value.device().index());
  const double computed = cpu_seconds() - cpu_begin;
  const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // Other work on the machine makes it longer, and never shorter. Not all that is computed is an operator's:
  // a sanitizer's part is a quarter.
  EXPECT_GT(taken, 0.5 * kFactor * computed);
}

}  // namespace
}  // namespace lockstep
