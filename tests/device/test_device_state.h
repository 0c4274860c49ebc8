#pragma once

// Shared by the sources of the test device; tests include test_device.h.

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/tests/device/test_device.h"
#include "lockstep/tests/gpu/stream_order.h"

namespace lockstep::test_device {

using fake_gpu::Clock;
using fake_gpu::StreamName;
using fake_gpu::StreamOrder;

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

StreamOrder& order();
int device_count() noexcept;

/// The calling thread's.
c10::Device current_device() noexcept;
void set_current_device(c10::DeviceIndex index) noexcept;
/// The calling thread's.
StreamName current_stream(c10::Device device);
StreamName name_of(const c10::Stream& stream);

/// Returns `device` with an index, which is the current device's if it has none. Throws c10::Error if there
/// is no such device.
c10::Device existing(c10::Device device);
/// Throws c10::NotImplementedError after lack_abilities().
void check_has(const char* ability);
/// Throws std::runtime_error after lack_abilities(), which is no class of LibTorch's, as torch_tpu does.
void check_has_as_torch_tpu(const char* ability);
/// Throws c10::AcceleratorError if `device` was lost.
void check_device(int device);
/// Whether memory, a stream or an operator of `device` has been used.
bool has_context(int device);
void make_context(int device);

/// One operator on a device, from its construction on: counts it, throws what a test has planned for it, and
/// at its end makes the calling thread sleep if the device is slow.
class OperatorRun {
 public:
  explicit OperatorRun(c10::Device device);
  ~OperatorRun();
  OperatorRun(const OperatorRun&) = delete;
  OperatorRun& operator=(const OperatorRun&) = delete;

 private:
  const int device_;
  const std::chrono::steady_clock::time_point begin_;
};

/// Sleeps for the time that slow operators of `device` on this thread still have to take.
void settle_time(int device);
/// The host waits for all that `stream` has to do, because of `what`.
void wait_on_host(StreamName stream, const std::string& what);

/// Returns the CPU's generator that makes the numbers of a generator of the test device.
at::Generator cpu_generator(const at::Generator& generator);
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace lockstep::test_device
