// The test device's guard: current devices and streams of threads, and events.
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>

#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kPoolStreams = 32;

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMaxDevices> streams{};
};

// Per thread, as in CUDA.
thread_local Current current;

/// The number of streams outside of the pool that each device has given. 1 to kPoolStreams are the pool's.
std::array<std::atomic<int64_t>, kMaxDevices> new_streams{};

struct Event {
  Clock clock;
  int device = 0;
  bool has_time = false;
  SteadyClock::time_point time;
};

c10::Stream stream_of(c10::Device device) {
  return c10::Stream(c10::Stream::UNSAFE, device, current.streams.at(static_cast<size_t>(device.index())));
}

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::Device getDevice() const override { return current_device(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = current_device();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override { set_current_device(existing(device).index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }

  c10::Stream getStream(c10::Device device) const override { return stream_of(existing(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, existing(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    check_has("pool of streams");
    static std::array<std::atomic<int64_t>, kMaxDevices> next{};
    device = used(device);
    return c10::Stream(c10::Stream::UNSAFE, device,
                       1 + next.at(static_cast<size_t>(device.index()))++ % kPoolStreams);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    device = used(device);
    return c10::Stream(c10::Stream::UNSAFE, device,
                       kPoolStreams + ++new_streams.at(static_cast<size_t>(device.index())));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current.streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    check_has("queries of streams");
    check_device(stream.device_index());
    settle_time(stream.device_index());
    order().learn_on_host(order().record(name_of(stream)));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check_has("waits for one stream");
    check_device(stream.device_index());
    wait_on_host(name_of(stream), "a stream");
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    const int device = used({kType, index}).index();
    const int64_t last = kPoolStreams + new_streams.at(static_cast<size_t>(device));
    for (int64_t id = 0; id <= last; ++id) wait_on_host({device, id}, "the device");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    order().use_on(static_cast<const char*>(data.get()), name_of(stream));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    check_has("events");
    const int device = used(stream.device()).index();
    settle_time(device);
    if (*event == nullptr) *event = new Event;
    auto& recorded = *static_cast<Event*>(*event);
    recorded.clock = order().record(name_of(stream));
    recorded.device = device;
    recorded.has_time = flag == c10::EventFlag::BACKEND_DEFAULT;
    recorded.time = SteadyClock::now();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    check_device(stream.device_index());
    order().wait(name_of(stream), static_cast<Event*>(event)->clock);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const auto& recorded = *static_cast<Event*>(event);
    check_device(recorded.device);
    order().learn_on_host(recorded.clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const auto& recorded = *static_cast<Event*>(event);
    check_device(recorded.device);
    order().wait_on_host(recorded.clock, "an event");
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "[test_device] both events must be recorded");
    const auto& begin = *static_cast<Event*>(first);
    const auto& end = *static_cast<Event*>(second);
    TORCH_CHECK(begin.has_time && end.has_time, "[test_device] both events must take the time");
    return std::chrono::duration<double, std::milli>(end.time - begin.time).count();
  }

 private:
  /// An existing device that has a context from now on.
  static c10::Device used(c10::Device device) {
    device = existing(device);
    check_device(device.index());
    make_context(device.index());
    return device;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace

c10::Device current_device() noexcept {
  return {kType, current.device};
}

void set_current_device(c10::DeviceIndex index) noexcept {
  if (index >= 0) current.device = index;
}

StreamName name_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

StreamName current_stream(c10::Device device) {
  return name_of(stream_of(device));
}

}  // namespace lockstep::test_device
