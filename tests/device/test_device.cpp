#include "lockstep/tests/device/test_device.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// The state of one device that all threads share.
struct SharedState {
  std::atomic<int64_t> operators{0};
  std::atomic<int64_t> fails_at{-1};  // an operator's number
  std::atomic<Fault> fault{Fault::kLost};
  std::atomic<bool> is_lost{false};
  std::atomic<bool> has_context{false};
  std::atomic<double> slowdown{1};
};

std::array<SharedState, kMaxDevices> states;
std::atomic<int> count_of_devices{4};
std::atomic<bool> is_count_known{false};
std::atomic<bool> lacks{false};
// Per thread and device; negative after a sleep that took too long.
thread_local std::array<SteadyClock::duration, kMaxDevices> owed_times{};

SharedState& state_of(int device) {
  return states.at(static_cast<size_t>(device));
}

const bool is_named = [] {
  c10::register_privateuse1_backend(kName);
  // For programs that load the device as a plugin.
  if (const char* factor = std::getenv("TEST_DEVICE_SLOWDOWN")) {
    for (int device = 0; device < kMaxDevices; ++device) slow_down(device, std::atof(factor));
  }
  return true;
}();

}  // namespace

StreamOrder& order() {
  static auto* const order = new StreamOrder(kName);  // tensors with static lifetime free memory after main
  return *order;
}

void set_device_count(int count) {
  TORCH_CHECK(count >= 0 && count <= kMaxDevices, "[test_device] expected a count in [0, ", kMaxDevices,
              "], but got ", count);
  TORCH_CHECK(!is_count_known, "[test_device] set_device_count() must come before any use of a device");
  count_of_devices = count;
}

int device_count() noexcept {
  is_count_known = true;
  return count_of_devices;
}

c10::Device device(int index) {
  return {kType, static_cast<c10::DeviceIndex>(index)};
}

c10::Device existing(c10::Device device) {
  if (!device.has_index()) device = current_device();
  TORCH_CHECK(device.index() < device_count(), "[test_device] there is no ", device.str(),
              ": the device count is ", device_count());
  return device;
}

void check_device(int device) {
  constexpr int kDeviceLost = 1;
  if (!state_of(device).is_lost) return;
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kDeviceLost,
                              c10::str("[test_device] ", kName, ":", device, " is lost"));
}

bool has_context(int device) {
  return state_of(device).has_context;
}

void make_context(int device) {
  state_of(device).has_context = true;
}

OperatorRun::OperatorRun(c10::Device device) : device_(device.index()), begin_(SteadyClock::now()) {
  auto& state = state_of(device_);
  check_device(device_);
  make_context(device_);
  if (++state.operators != state.fails_at) return;
  TORCH_CHECK_WITH(OutOfMemoryError, state.fault != Fault::kOutOfMemory, "[test_device] ", kName, ":",
                   device_, " is out of memory. An operator needs more than is free.");
  state.is_lost = true;
  check_device(device_);
}

OperatorRun::~OperatorRun() {
  const double factor = state_of(device_).slowdown;
  if (factor == 1) return;
  const auto time = (SteadyClock::now() - begin_) * (factor - 1);
  auto& owed = owed_times.at(static_cast<size_t>(device_));
  owed += std::chrono::duration_cast<SteadyClock::duration>(time);
  if (owed >= std::chrono::milliseconds(1)) settle_time(device_);
}

void settle_time(int device) {
  auto& owed = owed_times.at(static_cast<size_t>(device));
  if (owed <= SteadyClock::duration::zero()) return;
  const auto begin = SteadyClock::now();
  std::this_thread::sleep_for(owed);
  owed -= SteadyClock::now() - begin;
}

void wait_on_host(StreamName stream, const std::string& what) {
  settle_time(stream.device);
  order().wait_on_host(order().record(stream), what);
}

void fail_at_operator(int device, int64_t number, Fault fault) {
  TORCH_CHECK(number >= 1, "[test_device] expected an operator's number of 1 or more, but got ", number);
  auto& state = state_of(device);
  state.fault = fault;
  state.fails_at = state.operators + number;
}

void repair(int device) {
  auto& state = state_of(device);
  state.fails_at = -1;
  state.is_lost = false;
}

int64_t operators_begun(int device) {
  return state_of(device).operators;
}

void slow_down(int device, double factor) {
  TORCH_CHECK(factor >= 1 && std::isfinite(factor), "[test_device] expected a factor of 1 or more, but got ",
              factor);
  state_of(device).slowdown = factor;
}

void lack_abilities() {
  lacks = true;
}

void check_has(const char* ability) {
  TORCH_CHECK_NOT_IMPLEMENTED(!lacks, "[test_device] this backend has no ", ability);
}

void check_has_as_torch_tpu(const char* ability) {
  if (lacks) throw std::runtime_error(std::string("[test_device] this backend has no ") + ability);
}

std::vector<std::string> races() {
  return order().races();
}

std::vector<std::string> host_waits() {
  return order().host_waits();
}

void forget() {
  order().forget();
}

}  // namespace lockstep::test_device
