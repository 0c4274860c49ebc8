// The test device's hooks and generators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/GeneratorImpl.h>

#include <array>

#include "lockstep/tests/device/test_device_memory.h"
#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {
namespace {

/// Draws what a CPU generator with the same seed draws.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(kType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        inner_(at::detail::createCPUGenerator()) {}

  const at::Generator& inner() const { return inner_; }
  void set_current_seed(uint64_t seed) override { inner_.set_current_seed(seed); }
  uint64_t current_seed() const override { return inner_.current_seed(); }
  uint64_t seed() override { return inner_.seed(); }
  void set_offset(uint64_t offset) override { inner_.set_offset(offset); }
  uint64_t get_offset() const override { return inner_.get_offset(); }
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

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return has_context(existing({kType, device}).index());
  }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device().index(); }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(existing({kType, device}).index());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return has_context(existing({kType, device}).index()) ? exchangeDevice(device) : getCurrentDevice();
  }
  c10::Device getDeviceFromPtr(void* data) const override {
    const auto device = device_of_memory(data);
    TORCH_CHECK(device, "[test_device] ", data, " is not memory of a device");
    return *device;
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(existing({kType, device}).index());
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

const bool has_hooks = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // LibTorch never deletes hooks
  return true;
}();

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto generators = [] {
    std::array<at::Generator, kMaxDevices> made;
    for (size_t i = 0; i < made.size(); ++i)
      made[i] = at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i));
    return made;
  }();
  return generators.at(static_cast<size_t>(existing({kType, device}).index()));
}

at::Generator cpu_generator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->inner();
}

}  // namespace lockstep::test_device
