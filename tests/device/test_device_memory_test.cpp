#include <ATen/DeviceAccelerator.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/Resize.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>

#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Property;
using testing::Throws;

class TestDeviceMemory : public TestDevice {
 protected:
  static c10::CachingAllocator::Stat bytes(int device) {
    return c10::getDeviceAllocator(at::kPrivateUse1)
        ->getDeviceStats(static_cast<c10::DeviceIndex>(device))
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }
};

TEST_F(TestDeviceMemory, LiveAndPeakBytesAreCountedByDevice) {
  const int64_t before = bytes(1).current;
  const int64_t elsewhere = bytes(2).current;
  c10::getDeviceAllocator(at::kPrivateUse1)->resetPeakStats(1);
  {
    const auto kept = torch::empty({100}, test_device::device(1));
    { const auto freed = torch::empty({1000}, test_device::device(1)); }
    const auto view = kept.slice(0, 10, 20);
    EXPECT_EQ(bytes(1).current - before, 400);
    EXPECT_EQ(bytes(1).peak - before, 4400);
    at::accelerator::resetPeakStats(1);
    EXPECT_EQ(bytes(1).peak - before, 400);
  }
  EXPECT_EQ(bytes(1).current, before);
  EXPECT_EQ(bytes(2).current, elsewhere);
}

TEST_F(TestDeviceMemory, AnAllocationBeyondTheLimitIsRefusedAsOnAGpu) {
  const int64_t before = bytes(0).current;
  constexpr int64_t kMiB = 1 << 20;
  test_device::limit_memory(0, before + 4 * kMiB);
  const auto half = torch::empty({2 * kMiB}, torch::dtype(torch::kUInt8).device(test_device::device(0)));
  const auto [free, total] = at::accelerator::getMemoryInfo(0);
  EXPECT_EQ(free, 2 * kMiB);
  EXPECT_EQ(total, before + 4 * kMiB);
  EXPECT_THAT(
      [] { torch::empty({kMiB}, test_device::device(0)); },
      Throws<c10::OutOfMemoryError>(Property(
          &c10::Error::what_without_backtrace,
          AllOf(HasSubstr("testdevice is out of memory. Tried to allocate 4.00 MiB. testdevice:0 has "),
                HasSubstr(" of which 2.00 MiB is free. ")))));
  EXPECT_EQ(bytes(0).current - before, 2 * kMiB);
  EXPECT_NO_THROW(torch::empty({kMiB}, test_device::device(1)));
  test_device::limit_memory(0, -1);
  EXPECT_NO_THROW(torch::empty({kMiB}, test_device::device(0)));
}

TEST_F(TestDeviceMemory, AnOperatorsResultsCountToo) {
  const auto x = torch::ones({1000}, test_device::device(0));
  const int64_t before = bytes(0).current;
  const auto y = x + x;
  EXPECT_EQ(bytes(0).current - before, 4000);
  test_device::limit_memory(0, bytes(0).current + 3999);
  EXPECT_THROW(x * y, c10::OutOfMemoryError);
  EXPECT_THROW(torch::nonzero(x), c10::OutOfMemoryError);
}

TEST_F(TestDeviceMemory, RawMemoryIsOnTheCurrentDevice) {
  const c10::DeviceGuard guard(test_device::device(3));
  auto* const allocator = c10::GetAllocator(at::kPrivateUse1);
  const int64_t before = bytes(3).current;
  void* const data = allocator->raw_allocate(64);
  EXPECT_EQ(bytes(3).current - before, 64);
  EXPECT_EQ(at::globalContext().getAcceleratorHooksInterface(at::kPrivateUse1).getDeviceFromPtr(data),
            test_device::device(3));
  allocator->raw_deallocate(data);
  EXPECT_EQ(bytes(3).current, before);
}

TEST_F(TestDeviceMemory, StoragesGrowOnTheirOwnDevice) {
  auto x = torch::arange(4, torch::device(test_device::device(2)).dtype(torch::kFloat));
  const int64_t before = bytes(2).current;
  at::native::resize_bytes_nocuda(x.storage(), 40);
  EXPECT_EQ(bytes(2).current - before, 24);
  EXPECT_TRUE(torch::equal(x.cpu(), torch::arange(4, torch::kFloat)));
  x.resize_({2, 5});
  EXPECT_EQ(x.storage().nbytes(), 40);
  x.resize_({3, 5});
  EXPECT_EQ(x.storage().nbytes(), 60);
  EXPECT_EQ(x.device(), test_device::device(2));
  EXPECT_TRUE(torch::equal(x.flatten().slice(0, 0, 4).cpu(), torch::arange(4, torch::kFloat)));
}

TEST_F(TestDeviceMemory, SetSharesAStorage) {
  const auto x = torch::arange(6, torch::device(test_device::device(1)).dtype(torch::kFloat));
  auto y = torch::empty({0}, test_device::device(1));
  y.set_(x);
  EXPECT_TRUE(y.is_alias_of(x));
  EXPECT_TRUE(torch::equal(y.cpu(), x.cpu()));
  y.set_(x.storage(), 2, {2, 2}, {2, 1});
  EXPECT_TRUE(torch::equal(y.cpu(), torch::arange(2, 6, torch::kFloat).view({2, 2})));
  y.set_(x.storage());
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{6}));
  y.set_();
  EXPECT_EQ(y.numel(), 0);
  EXPECT_EQ(y.device(), test_device::device(1));
  EXPECT_THROW(y.set_(torch::empty({2}, test_device::device(0)).storage(), 0, {2}, {1}), c10::Error);
}

TEST_F(TestDeviceMemory, PinnedMemoryIsTheHosts) {
  auto* const allocator = at::getHostAllocator(at::kPrivateUse1);
  const int64_t before = allocator->get_stats().allocated_bytes.current;
  {
    const auto pinned = torch::arange(10, torch::kFloat).pin_memory();
    EXPECT_TRUE(pinned.is_cpu());
    EXPECT_TRUE(pinned.is_pinned());
    EXPECT_TRUE(pinned.slice(0, 3, 5).is_pinned());
    EXPECT_FALSE(torch::empty({10}).is_pinned());
    EXPECT_TRUE(torch::empty({10}, torch::TensorOptions().pinned_memory(true)).is_pinned());
    EXPECT_EQ(allocator->get_stats().allocated_bytes.current - before, 40);
    EXPECT_TRUE(torch::equal(pinned, torch::arange(10, torch::kFloat)));
  }
  EXPECT_EQ(allocator->get_stats().allocated_bytes.current, before);
}

}  // namespace
}  // namespace lockstep
