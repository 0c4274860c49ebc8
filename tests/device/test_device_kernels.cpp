// The test device's operators on memory and shapes rather than values.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <optional>

#include "lockstep/tests/device/test_device_memory.h"
#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceGuard on_device(existing(c10::device_or_default(device)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator(), kKeys,
                                   c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard on_device(existing(c10::device_or_default(device)));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           &device_allocator(), kKeys, c10::dtype_or_default(dtype));
}

void copy_values(const at::Tensor& from, const at::Tensor& to) {
  HostViews views;
  views.of(to).copy_(views.of(from));
}

/// Copies on the source's stream, after the destination's earlier work and before its later work, as CUDA
/// does.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  const OperatorRun reading(from.device());
  const OperatorRun writing(to.device());
  const StreamName source = current_stream(from.device());
  const StreamName destination = current_stream(to.device());
  order().wait(source, order().record(destination));
  order().launch(source, "aten::copy_", ranges_of(from), ranges_of(to));
  order().wait(destination, order().record(source));
  copy_values(from, to);
}

/// Copies to pinned memory without making the host wait: until the host does wait, it finds garbage there.
void show_later(StreamName stream, const at::Tensor& from, const at::Tensor& to) {
  const auto values = at::empty_like(to);
  copy_values(from, values);
  std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
  // Bypasses autograd, as a device's writes do.
  order().show_on_host(stream, [to, values, data = to.mutable_data_ptr()] {
    std::memcpy(data, values.const_data_ptr(), values.nbytes());
  });
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0 || to.is_same(from)) return to;
  if (is_on_device(from) && is_on_device(to) && from.device() != to.device()) {
    copy_between_devices(from, to);
    return to;
  }
  const at::Device device = is_on_device(to) ? to.device() : from.device();
  const OperatorRun run(device);
  const StreamName stream = current_stream(device);
  order().launch(stream, "aten::copy_", ranges_of(from), ranges_of(to));
  const at::Tensor& on_host = is_on_device(to) ? from : to;
  const bool host_waits = !is_on_device(on_host) && !(non_blocking && is_pinned(on_host.const_data_ptr()));
  if (host_waits) wait_on_host(stream, is_on_device(to) ? "a copy to the device" : "a copy to the host");
  if (!is_on_device(to) && !host_waits && to.is_contiguous()) {
    show_later(stream, from, to);
  } else {
    copy_values(from, to);
  }
  return to;
}

/// LibTorch's own copy_() calls _copy_from(), too, but only once it has resolved conjugates by copies.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  copy_from(source, self, non_blocking);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, /*non_blocking=*/false);
}

/// Makes room for `tensor`'s elements.
void grow_storage(c10::TensorImpl& tensor) {
  if (tensor.numel() == 0) return;
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                        static_cast<size_t>(tensor.storage_offset()));
  auto& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) resize_storage(storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* const impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) impl->set_sizes_contiguous(sizes);
  if (memory_format) impl->empty_tensor_restride(*memory_format);
  grow_storage(*impl);
  return self;
}

at::Tensor& set_storage_with_shape(at::Tensor& self, at::Storage source, c10::SymInt offset,
                                   c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto strides = C10_AS_INTARRAYREF_SLOW(stride);
  const int64_t first = offset.expect_int();
  at::native::checkSetStorage(self, std::move(source), first, sizes, strides);
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(first);
  if (stride.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides, first);
  }
  grow_storage(*impl);
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  const c10::DeviceGuard on_device(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &device_allocator(), /*resizable=*/true);
  return self.set_(std::move(storage), 0, {0}, {});
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

/// Lets Module::to() move a module's tensors to the device and back: a parameter takes over the copy's
/// memory.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_of_either = [](const at::Tensor& tensor) { return tensor.is_cpu() || is_on_device(tensor); };
  return is_of_either(self) && is_of_either(from) && self.layout() == from.layout();
}

void record_stream(at::Tensor& self, at::Stream stream) {
  check_has_as_torch_tpu("memory that is used on several streams");
  order().use_on(static_cast<const char*>(self.storage().data()), name_of(stream));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage_with_shape);
  library.impl("set_.source_Storage",
               static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_", &set_nothing);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("record_stream", &record_stream);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace lockstep::test_device
