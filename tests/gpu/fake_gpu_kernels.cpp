// The operators of the fake GPU: each on the CPU, after its accesses to memory were noted.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

// An operator's own copies to the CPU and back are none of the program's.
thread_local int inside_operator = 0;

struct Inside {
  Inside() { ++inside_operator; }
  ~Inside() { --inside_operator; }
};

StreamOrder::Range range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<size_t>(last + 1) * tensor.element_size()};
}

template <typename Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) function(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor) function(*tensor);
    }
  }
}

/// Operators whose results' shapes the host must know.
bool waits_for_device(const std::string& name) {
  static const std::set<std::string> names{"aten::_local_scalar_dense", "aten::nonzero",
                                           "aten::masked_select", "aten::_unique2", "aten::equal"};
  return names.contains(name);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  std::vector<StreamOrder::Range> reads;
  std::vector<StreamOrder::Range> writes;
  std::set<const void*> given;
  std::optional<c10::Device> device;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) return;
      if (!device) device = tensor.device();
      given.insert(tensor.unsafeGetTensorImpl());
      (is_written ? writes : reads).push_back(range_of(tensor));
    });
    if (value.isGenerator() && value.toGenerator().device().is_cuda())
      value = c10::IValue(cpu_generator(value.toGenerator()));
  }
  const c10::OptionalDeviceGuard on_device(device);
  {
    const Inside inside;
    at::native::cpu_fallback(op, stack);
  }
  if (!device) return;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && !given.contains(tensor.unsafeGetTensorImpl()))
        writes.push_back(range_of(tensor));
    });
  }
  const std::string name = schema.name();
  const StreamName stream = current_stream(*device);
  if (inside_operator == 0) order().launch(stream, name, reads, writes);
  if (inside_operator == 0 && waits_for_device(name)) order().wait_on_host(order().record(stream), name);
}

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

/// A CPU tensor on the same memory.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  return at::from_blob(tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr()),
                       tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

void note_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (inside_operator > 0) return;
  if (to.is_cuda() && from.is_cuda()) {
    // As CUDA's: on the source's stream, with the destination's stream before and after it.
    const StreamName source = current_stream(from.device());
    const StreamName destination = current_stream(to.device());
    order().wait(source, order().record(destination));
    order().launch(source, "aten::copy_", {range_of(from)}, {range_of(to)});
    order().wait(destination, order().record(source));
    return;
  }
  const StreamName stream = current_stream(to.is_cuda() ? to.device() : from.device());
  order().launch(stream, "aten::copy_", {range_of(from)}, {range_of(to)});
  const at::Tensor& on_host = to.is_cuda() ? from : to;
  if (non_blocking && is_pinned(on_host.const_data_ptr())) return;
  order().wait_on_host(order().record(stream), to.is_cuda() ? "a copy to the device" : "a copy to the host");
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0) return self;
  note_copy(self, source, non_blocking);
  on_cpu(self).copy_(on_cpu(source));
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

std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& input, double kept,
                                                 std::optional<at::Generator> generator) {
  at::Tensor output;
  at::Tensor mask;
  as_operator("aten::_fused_dropout", {input}, [&] {
    const auto drawn = generator ? std::optional(cpu_generator(*generator)) : std::nullopt;
    const auto bytes = input.options().device(at::kCPU).dtype(at::kByte);
    const at::Tensor on_host = at::empty_like(input, bytes).bernoulli_(kept, drawn);
    output = (input.cpu() * on_host / kept).to(input.device());
    mask = on_host.to(input.device());
    return std::vector<at::Tensor>{output, mask};
  });
  return {output, mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self * mask * scale;
}

void record_stream(at::Tensor& self, at::Stream stream) {
  order().use_on(static_cast<const char*>(self.storage().data()), {stream.device_index(), stream.id()});
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
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
  library.impl("_fused_dropout", &fused_dropout);
  library.impl("_masked_scale", &masked_scale);
}

}  // namespace

void as_operator(const std::string& name, const std::vector<at::Tensor>& reads,
                 const std::function<std::vector<at::Tensor>()>& compute) {
  const c10::OptionalDeviceGuard on_device(reads.at(0).device());
  std::vector<at::Tensor> written;
  {
    const Inside inside;
    written = compute();
  }
  if (inside_operator > 0) return;
  std::vector<StreamOrder::Range> read_ranges;
  std::vector<StreamOrder::Range> written_ranges;
  for (const auto& tensor : reads) read_ranges.push_back(range_of(tensor));
  for (const auto& tensor : written) written_ranges.push_back(range_of(tensor));
  order().launch(current_stream(reads.at(0).device()), name, read_ranges, written_ranges);
}

}  // namespace lockstep::fake_gpu
