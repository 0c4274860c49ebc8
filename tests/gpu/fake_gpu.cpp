#include "lockstep/tests/gpu/fake_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

constexpr c10::DeviceType kCuda = c10::DeviceType::CUDA;
constexpr int64_t kPoolStreams = 32;

struct Memory {
  std::mutex mutex;
  std::map<const void*, size_t> pinned;
  std::array<int64_t, kNumDevices> used{};
  std::array<int64_t, kNumDevices> limit{-1, -1};
};

Memory& memory() {
  static Memory memory;
  return memory;
}

struct Current {
  int device = 0;
  std::array<int64_t, kNumDevices> streams{};
};

// CUDA keeps them a thread, too.
thread_local Current current;

c10::Stream stream_of(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kCuda, static_cast<c10::DeviceIndex>(device)),
                     current.streams.at(static_cast<size_t>(device)));
}

StreamName name_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

struct Event {
  Clock clock;
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
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->clock = order().record(name_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) order().wait(name_of(stream), static_cast<Event*>(event)->clock);
  }
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    order().wait_on_host(order().record(name_of(stream)), "a stream");
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) order().wait_on_host(static_cast<Event*>(event)->clock, "an event");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (int64_t id = 0; id <= kPoolStreams; ++id)
      order().wait_on_host(order().record({static_cast<int>(device), id}), "the device");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    order().use_on(static_cast<const char*>(data.get()), name_of(stream));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }
};
C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl);

/// What a tensor's memory carries, to be given back.
struct Block {
  void* data;
  size_t bytes;
  int device;
};

void free_device_memory(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  order().free(static_cast<const char*>(block->data));
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().used.at(static_cast<size_t>(block->device)) -= static_cast<int64_t>(block->bytes);
  }
  std::free(block->data);
}

std::string megabytes(int64_t bytes) {
  return std::to_string(bytes >> 20) + "." + std::to_string((bytes % (1 << 20)) * 10 >> 20) + "0 MiB";
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current.device;
    {
      const std::lock_guard<std::mutex> lock(memory().mutex);
      auto& used = memory().used.at(static_cast<size_t>(device));
      const int64_t limit = memory().limit.at(static_cast<size_t>(device));
      if (limit >= 0 && used + static_cast<int64_t>(bytes) > limit) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ",
                         megabytes(static_cast<int64_t>(bytes)), ". GPU ", device,
                         " has a total capacity of ", megabytes(limit), " of which ", megabytes(limit - used),
                         " is free. ");
      }
      used += static_cast<int64_t>(bytes);
    }
    // Not zeroed, as on a GPU; at least one byte, so that every block has an address of its own.
    void* data = std::malloc(bytes == 0 ? 1 : bytes);
    order().allocate(name_of(stream_of(device)), {static_cast<const char*>(data), bytes});
    return {data, new Block{data, bytes, device}, &free_device_memory,
            c10::Device(kCuda, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

void free_pinned_memory(void* data) {
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().pinned.erase(data);
  }
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().pinned[data] = bytes;
    return {data, data, &free_pinned_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_memory; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(kCuda, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        inner_(at::detail::createCPUGenerator()) {}

  const at::Generator& inner() const { return inner_; }
  void set_current_seed(uint64_t seed) override { inner_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner_.set_offset(offset); }
  uint64_t get_offset() const override { return inner_.get_offset(); }
  uint64_t current_seed() const override { return inner_.current_seed(); }
  uint64_t seed() override { return inner_.seed(); }
  void set_state(const c10::TensorImpl& state) override { inner_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
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

PinnedAllocator pinned_allocator;

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
  bool isPinnedPtr(const void* data) const override { return lockstep::fake_gpu::is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &lockstep::fake_gpu::pinned_allocator; }
  at::Device getDeviceFromPtr(void*) const override { return {c10::DeviceType::CUDA, current_device()}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static const std::array<at::Generator, lockstep::fake_gpu::kNumDevices> generators{
        at::make_generator<lockstep::fake_gpu::Generator>(0),
        at::make_generator<lockstep::fake_gpu::Generator>(1)};
    return generators.at(device < 0 ? static_cast<size_t>(current_device()) : static_cast<size_t>(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
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
  static auto* const order = new StreamOrder;  // tensors with static lifetime give memory back after main
  return *order;
}

c10::Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

StreamName current_stream(c10::Device device) {
  return name_of(stream_of(device.index()));
}

bool is_pinned(const void* data) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto next = memory().pinned.upper_bound(data);
  if (next == memory().pinned.begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return data < static_cast<const char*>(begin) + bytes;
}

at::Generator cpu_generator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->inner();
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
int used_streams(int device) {
  return order().used_streams(device);
}

void limit_memory(int device, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().limit.at(static_cast<size_t>(device)) = bytes;
}

}  // namespace lockstep::fake_gpu
