#include "lockstep/benchmarks/device_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "lockstep/benchmarks/chrome_trace.h"

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DeviceUse, CountsTheTimeBetweenKernelsAsIdle) {
  // 100 us, with no kernel from 10 to 20 and from 50 to 80.
  const auto use = measure_device_use({.kernels = {{0, 10}, {20, 50}, {80, 100}}});
  EXPECT_DOUBLE_EQ(use.microseconds, 100);
  EXPECT_DOUBLE_EQ(use.idle_share, 0.4);
  EXPECT_DOUBLE_EQ(use.longest_idle_microseconds, 30);
  EXPECT_EQ(use.copy_overlap_share, std::nullopt);
}

TEST(DeviceUse, CountsKernelsOnSeveralStreamsOnce) {
  // Unordered. 1000 to 1060 and 1080 to 1100 are covered, the latter by three nested kernels.
  const auto use =
      measure_device_use({.kernels = {{1085, 1090}, {1000, 1040}, {1030, 1060}, {1080, 1100}, {1095, 1100}}});
  EXPECT_DOUBLE_EQ(use.microseconds, 100);
  EXPECT_DOUBLE_EQ(use.idle_share, 0.2);
  EXPECT_DOUBLE_EQ(use.longest_idle_microseconds, 20);
}

TEST(DeviceUse, HasNoIdleTimeWhereOneKernelFollowsTheOther) {
  const auto use = measure_device_use({.kernels = {{0, 10}, {10, 30}}});
  EXPECT_DOUBLE_EQ(use.idle_share, 0);
  EXPECT_DOUBLE_EQ(use.longest_idle_microseconds, 0);
}

TEST(DeviceUse, SaysWhichShareOfTheCopiesIsMadeBesideKernels) {
  // 40 us of copies: 10 during the first kernel, 5 and 5 during the second and third, 20 during no kernel.
  const auto use = measure_device_use(
      {.kernels = {{0, 20}, {40, 45}, {50, 60}}, .copies_from_host = {{5, 15}, {40, 55}, {60, 75}}});
  ASSERT_TRUE(use.copy_overlap_share);
  EXPECT_DOUBLE_EQ(*use.copy_overlap_share, 20.0 / 40);
}

TEST(DeviceUse, RefusesAProfileWithoutKernels) {
  EXPECT_THROW(measure_device_use({}), std::invalid_argument);
  EXPECT_THROW(measure_device_use({.kernels = {{5, 5}}}), std::invalid_argument);
  EXPECT_THROW(measure_device_use({.kernels = {{5, 4}, {5, 7}}}), std::invalid_argument);
}

TEST(ChromeTrace, HasKernelsAndCopiesOfOneDevice) {
  // As LibTorch 2.11 writes them, except for the numbers.
  std::istringstream trace(R"json({
    "schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1700000000000000000,
    "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 100.500, "dur": 9.500,
       "args": {"device": 0, "stream": 7}},
      {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 1, "tid": 7, "ts": 1.000, "dur": 2.000,
       "args": {"device": 1, "stream": 7}},
      {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 120.000, "dur": 10.000,
       "args": {"device": 0, "stream": 7}},
      {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "pid": 0, "tid": 7, "ts": 140.000,
       "dur": 10.500, "args": {"device": 0, "stream": 7}},
      {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 9, "ts": 105.000,
       "dur": 20.000, "args": {"device": 0, "stream": 9}},
      {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7, "ts": 200.000,
       "dur": 50.000, "args": {"device": 0, "stream": 7}},
      {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4, "tid": 4, "ts": 0.000, "dur": 500.000,
       "args": {}},
      {"ph": "s", "id": 3, "pid": 4, "tid": 4, "ts": 90.000, "cat": "ac2g", "name": "ac2g"},
      {"name": "process_name", "ph": "M", "ts": 0.000, "pid": 0, "tid": 0, "args": {"name": "GPU 0"}}
    ]})json");
  const auto use = measure_device_use(read_chrome_trace(trace, 0));
  // 100.5 to 150.5 with 9.5 + 10 + 10.5 us of work; the copy has 5 us during the kernel and 5 during the
  // memset.
  EXPECT_DOUBLE_EQ(use.microseconds, 50);
  EXPECT_DOUBLE_EQ(use.idle_share, 0.4);
  ASSERT_TRUE(use.copy_overlap_share);
  EXPECT_DOUBLE_EQ(*use.copy_overlap_share, 0.5);
}

TEST(ChromeTrace, RefusesWhatIsNone) {
  for (const char* text : {"", "{\"traceEvents\": [", "{}"}) {
    std::istringstream trace(text);
    EXPECT_THAT([&] { read_chrome_trace(trace, 0); },
                ThrowsMessage<std::runtime_error>(HasSubstr("expected a trace of LibTorch's profiler")))
        << text;
  }
}

}  // namespace
}  // namespace lockstep::benchmarks
