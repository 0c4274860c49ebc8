// The fake GPU's operators on memory and shapes rather than values.
#include <ATen/EmptyTensor.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_memory.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

c10::Device device_or_current(std::optional<c10::Device> device) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  return device && device->has_index() ? *device : guard.getDevice();
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> memory_format) {
  const c10::OptionalDeviceGuard on_device(device_or_current(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on_device(device_or_current(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

/// Copies between GPUs as CUDA does: on the source's stream, after the destination's earlier work and before
/// its later work.
void copy_between_devices(const at::Tensor& to, const at::Tensor& from) {
  const StreamName source = current_stream(from.device());
  const StreamName destination = current_stream(to.device());
  for (const auto& stream : {source, destination}) {
    if (const auto capture = capture_for_work(stream)) capture->fail(kIsolation);
  }
  count_call(&DriverCalls::copies);
  order().wait(source, order().record(destination));
  order().launch(source, "aten::copy_", {range_of(from)}, {range_of(to)});
  order().wait(destination, order().record(source));
  host_view(to).copy_(host_view(from));
}

void note_copy(Capture& capture, const at::Tensor& to, const at::Tensor& from) {
  Work work{.name = "aten::copy_", .reads = {range_of(from)}, .writes = {range_of(to)}};
  for (const auto& tensor : {to, from}) {
    const void* const data = tensor.const_data_ptr();
    work.memory.push_back(tensor.is_cuda() ? block_at(data) : pinned_memory_at(data));
  }
  work.compute = [to = host_view(to), from = host_view(from)] { to.copy_(from); };
  capture.note(current_stream((to.is_cuda() ? to : from).device()), std::move(work));
  // The host can see its own memory, so the capture must not change it.
  if (to.is_cuda()) capture.writable_view(to).copy_(from.is_cuda() ? capture.view(from) : from);
}

/// Copies to pinned memory without making the host wait: until the host does wait, it finds garbage there.
void show_later(StreamName stream, const at::Tensor& to, const at::Tensor& from) {
  const auto values = at::empty_like(to).copy_(host_view(from));
  std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
  // Bypasses autograd, as a GPU's writes do.
  order().show_on_host(stream, [to, values, data = to.mutable_data_ptr()] {
    std::memcpy(data, values.const_data_ptr(), values.nbytes());
  });
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0) return self;
  if (self.is_cuda() && source.is_cuda() && self.device() != source.device()) {
    copy_between_devices(self, source);
    return self;
  }
  const StreamName stream = current_stream((self.is_cuda() ? self : source).device());
  const at::Tensor& on_host = self.is_cuda() ? source : self;
  const bool host_waits =
      !on_host.is_cuda() && !(non_blocking && pinned_memory_at(on_host.const_data_ptr()) != nullptr);
  if (host_waits) refuse_host_wait_in_capture(stream);
  if (const auto capture = capture_for_work(stream)) {
    note_copy(*capture, self, source);
    return self;
  }
  count_call(&DriverCalls::copies);
  if (!source.is_cuda()) {
    count_call(&DriverCalls::bytes_from_host, static_cast<int64_t>(source.nbytes()));
  }
  order().launch(stream, "aten::copy_", {range_of(source)}, {range_of(self)});
  if (host_waits) {
    order().wait_on_host(order().record(stream),
                         self.is_cuda() ? "a copy to the device" : "a copy to the host");
  }
  if (!self.is_cuda() && !host_waits && self.is_contiguous()) {
    show_later(stream, self, source);
    return self;
  }
  const auto view = [](const at::Tensor& tensor) { return tensor.is_cuda() ? host_view(tensor) : tensor; };
  view(self).copy_(view(source));
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  destination.resize_(self.sizes());
  return const_cast<at::Tensor&>(destination).copy_(self);
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == sizes) return self;
  impl->set_sizes_contiguous(sizes);
  const auto bytes = (impl->storage_offset() + impl->numel()) * static_cast<int64_t>(impl->itemsize());
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > static_cast<int64_t>(storage->nbytes())) {
    const c10::OptionalDeviceGuard on_device(self.device());
    if (const auto capture = capture_for_work(current_stream(self.device()));
        capture && storage->nbytes() > 0)
      capture->fail("the fake GPU has no graph of a copy that resize_ makes");
    auto data = device_allocator().allocate(static_cast<size_t>(bytes));
    if (storage->nbytes() > 0) std::memcpy(data.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(static_cast<size_t>(bytes));
  }
  if (memory_format) impl->empty_tensor_restride(*memory_format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.empty() && !sizes.empty()) {
    impl->set_storage_offset(offset.expect_int());
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride), offset.expect_int());
  }
  return self;
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

void record_stream(at::Tensor& self, at::Stream stream) {
  count_call(&DriverCalls::streams_recorded);
  order().use_on(static_cast<const char*>(self.storage().data()), {stream.device_index(), stream.id()});
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy_);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("record_stream", &record_stream);
}

}  // namespace

}  // namespace lockstep::fake_gpu
