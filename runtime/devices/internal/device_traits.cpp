#include "lockstep/runtime/devices/internal/device_traits.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <map>
#include <stdexcept>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {
namespace {

/// Backends refuse what they do not have with any class of LibTorch's errors, and torch_tpu with others.
template <typename Attempt>
bool works(const Attempt& attempt) {
  try {
    return attempt();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::AcceleratorError&) {
    throw;
  } catch (const c10::Error&) {
    return false;
  } catch (const std::runtime_error&) {
    return false;
  }
}

DeviceTraits try_out(c10::DeviceType type) {
  const c10::Device first(type, 0);
  const c10::impl::VirtualGuardImpl backend(type);
  DeviceTraits traits;
  traits.has_stream_pool = works([&] {
    backend.getStreamFromGlobalPool(first, /*isHighPriority=*/true);
    return true;
  });
  traits.has_events = works([&] {
    c10::Event event(type);
    event.record(backend.getStream(first));
    event.block(backend.getStream(first));
    return true;
  });
  traits.has_stream_queries = works([&] {
    backend.queryStream(backend.getStream(first));
    return true;
  });
  traits.has_stream_waits = works([&] {
    backend.synchronizeStream(backend.getStream(first));
    return true;
  });
  traits.has_float64 = works([&] {
    const at::Tensor zero = at::zeros({}, at::TensorOptions(first).dtype(at::kDouble));
    return zero.add(zero).scalar_type() == at::kDouble;
  });
  // A backend may have an allocator that has no memory to give.
  traits.has_pinned_memory = works([&] {
    at::Allocator* pinned = at::globalContext().getAcceleratorHooksInterface(type).getPinnedMemoryAllocator();
    return pinned != nullptr && pinned->allocate(1).get() != nullptr;
  });
  return traits;
}

struct KnownTraits {
  Mutex mutex;
  std::map<c10::DeviceType, DeviceTraits> of_types LOCKSTEP_GUARDED_BY(mutex);
};

}  // namespace

const DeviceTraits& device_traits(c10::DeviceType type) {
  static const DeviceTraits all;
  static KnownTraits known;
  if (type == c10::DeviceType::CUDA || type == c10::DeviceType::CPU) return all;
  MutexLock lock(known.mutex);
  const auto found = known.of_types.find(type);
  return found != known.of_types.end() ? found->second
                                       : known.of_types.emplace(type, try_out(type)).first->second;
}

void synchronize_stream(const c10::Stream& stream) {
  if (device_traits(stream.device_type()).has_stream_waits) return stream.synchronize();
  c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeDevice(stream.device_index());
}

c10::ScalarType widest_float(c10::Device device) {
  return device_traits(device.type()).has_float64 ? at::kDouble : at::kFloat;
}

void check_index_is_kept(const LogicalDevice& device) {
  if (device.is_cpu() || device.is_cuda()) return;
  const c10::Device asked = device.torch_device();
  const c10::Device made = at::empty({1}, at::TensorOptions(asked)).device();
  if (made == asked) return;
  throw InvalidArgument("[device] '" + device.str() + "': its backend made a tensor on " + made.str() +
                        " instead, as it has one device in a process; start a process for each device");
}

}  // namespace lockstep
