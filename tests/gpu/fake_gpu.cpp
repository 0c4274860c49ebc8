#include "lockstep/tests/gpu/fake_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <memory>

#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_memory.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;
constexpr int64_t kPoolStreams = 32;

struct Current {
  int device = 0;
  std::array<int64_t, kNumDevices> streams{};
};

// Per thread, as in CUDA.
thread_local Current current;

std::array<std::atomic<bool>, kNumDevices> failed_devices{};

c10::Stream stream_of(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kCuda, static_cast<c10::DeviceIndex>(device)),
                     current.streams.at(static_cast<size_t>(device)));
}

StreamName name_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

struct Event {
  Clock clock;
  std::shared_ptr<Capture> capture;  // the capture in which it was recorded
  size_t number = 0;                 // its number in that capture
};

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kCuda; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kCuda, static_cast<c10::DeviceIndex>(current.device)}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current.device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const override {
    return stream_of(device.has_index() ? device.index() : current.device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int64_t> next{0};
    check_device(device.has_index() ? device.index() : current.device);
    return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : getDevice(),
                       1 + next++ % kPoolStreams);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current.streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    auto capture = capture_for_work(name_of(stream));
    if (!capture) count_call(&DriverCalls::event_records);
    if (*event == nullptr) *event = new Event;
    auto& recorded = *static_cast<Event*>(*event);
    recorded.capture = std::move(capture);
    if (recorded.capture) {
      recorded.number = recorded.capture->record(name_of(stream));
    } else {
      recorded.clock = order().record(name_of(stream));
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const auto& recorded = *static_cast<Event*>(event);
    if (is_wait_in_capture(name_of(stream), recorded.capture, recorded.number)) return;
    count_call(&DriverCalls::event_waits);
    order().wait(name_of(stream), recorded.clock);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const auto& recorded = *static_cast<Event*>(event);
    refuse_event_wait_in_capture(recorded.capture);
    order().learn_on_host(recorded.clock);
    return true;
  }
  bool queryStream(const c10::Stream& stream) const override {
    refuse_host_wait_in_capture(name_of(stream));
    order().learn_on_host(order().record(name_of(stream)));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    refuse_host_wait_in_capture(name_of(stream));
    order().wait_on_host(order().record(name_of(stream)), "a stream");
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const auto& recorded = *static_cast<Event*>(event);
    refuse_event_wait_in_capture(recorded.capture);
    order().wait_on_host(recorded.clock, "an event");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    refuse_device_wait_in_capture(device);
    for (int64_t id = 0; id <= kPoolStreams; ++id)
      order().wait_on_host(order().record({static_cast<int>(device), id}), "the device");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    order().use_on(static_cast<const char*>(data.get()), name_of(stream));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }
};
C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl);

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(kCuda, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        inner_(at::detail::createCPUGenerator()) {}

  const at::Generator& inner() const { return inner_; }
  // Like CUDA's generator, refuses calls in a capture if every replay would have to repeat them.
  void set_current_seed(uint64_t seed) override {
    refuse_in_capture(device(), "set_current_seed");
    inner_.set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override {
    refuse_in_capture(device(), "set_offset");
    inner_.set_offset(offset);
  }
  uint64_t get_offset() const override {
    refuse_in_capture(device(), "get_offset");
    return inner_.get_offset();
  }
  uint64_t current_seed() const override {
    refuse_in_capture(device(), "current_seed");
    return inner_.current_seed();
  }
  uint64_t seed() override {
    refuse_in_capture(device(), "seed");
    return inner_.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    refuse_in_capture(device(), "set_state");
    inner_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    refuse_in_capture(device(), "get_state");
    return inner_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->inner_ = inner_.clone();
    return copy;
  }

  at::Generator inner_;
};

}  // namespace
}  // namespace lockstep::fake_gpu

// LibTorch looks for a class of this name.
struct CUDAHooks final : public at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return lockstep::fake_gpu::kNumDevices; }
  int getNumGPUs() const override { return lockstep::fake_gpu::kNumDevices; }
  c10::DeviceIndex current_device() const override {
    return static_cast<c10::DeviceIndex>(lockstep::fake_gpu::current.device);
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    lockstep::fake_gpu::current.device = device;
  }
  bool isPinnedPtr(const void* data) const override {
    return lockstep::fake_gpu::pinned_memory_at(data) != nullptr;
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &lockstep::fake_gpu::pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return {c10::DeviceType::CUDA, current_device()}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static const auto generators = [] {
      std::array<at::Generator, lockstep::fake_gpu::kNumDevices> made;
      for (size_t i = 0; i < made.size(); ++i)
        made[i] = at::make_generator<lockstep::fake_gpu::Generator>(static_cast<c10::DeviceIndex>(i));
      return made;
    }();
    return generators.at(device < 0 ? static_cast<size_t>(current_device()) : static_cast<size_t>(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    lockstep::fake_gpu::check_device(device);
    return at::make_generator<lockstep::fake_gpu::Generator>(device);
  }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    lockstep::fake_gpu::GuardImpl().synchronizeDevice(device);
  }
};
namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}

namespace lockstep::fake_gpu {

StreamOrder& order() {
  static auto* const order = new StreamOrder;  // tensors with static lifetime free memory after main
  return *order;
}

c10::Device current_device() {
  return {kCuda, static_cast<c10::DeviceIndex>(current.device)};
}

StreamName current_stream(c10::Device device) {
  return name_of(stream_of(device.index()));
}

at::Generator cpu_generator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->inner();
}

std::vector<std::string> races() {
  auto races = order().races();
  for (auto& complaint : nccl_complaints()) races.push_back(std::move(complaint));
  return races;
}
std::vector<std::string> host_waits() {
  return order().host_waits();
}
void forget() {
  order().forget();
  forget_graphs();
  forget_nccl();
  forget_driver_calls();
}

void fail_device(int device, bool has_failed) {
  failed_devices.at(static_cast<size_t>(device)) = has_failed;
}

void check_device(int device) {
  constexpr int kIllegalAddress = 700;  // cudaErrorIllegalAddress
  if (!failed_devices.at(static_cast<size_t>(device))) return;
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kIllegalAddress,
                              "CUDA error: an illegal memory access was encountered");
}

int used_streams(int device) {
  return order().used_streams(device);
}

}  // namespace lockstep::fake_gpu
