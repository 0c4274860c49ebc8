#include <ATen/EmptyTensor.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "lockstep/tests/device/test_device_memory.h"

namespace lockstep::test_device {
namespace {

at::SparseTensorImpl& sparse_impl(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor sparse_of(const at::Tensor& indices, const at::Tensor& values, const at::Tensor& like) {
  return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes(), values.options().layout(at::kSparse),
                                       sparse_impl(like).coalesced());
}

at::Tensor empty_like_on_device(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  if (!tensor.is_non_overlapping_and_dense())
    return at::detail::empty_generic(tensor.sizes(), &device_allocator(), keys, tensor.scalar_type(),
                                     std::nullopt);
  return at::detail::empty_strided_generic(tensor.sizes(), tensor.strides(), &device_allocator(), keys,
                                           tensor.scalar_type());
}

}  // namespace

bool is_on_device(const at::Tensor& tensor) {
  return tensor.device().type() == kType;
}

std::vector<StreamOrder::Range> ranges_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_on_device(tensor) || tensor.numel() == 0) return {};
  if (tensor.is_sparse()) {
    auto ranges = ranges_of(sparse_impl(tensor).indices());
    for (const auto& range : ranges_of(sparse_impl(tensor).values())) ranges.push_back(range);
    return ranges;
  }
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {{static_cast<const char*>(tensor.const_data_ptr()),
           static_cast<size_t>(last + 1) * tensor.element_size()}};
}

at::Tensor copied_to_device(const at::Tensor& tensor) {
  if (tensor.is_sparse()) {
    const auto& impl = sparse_impl(tensor);
    return sparse_of(copied_to_device(impl.indices()), copied_to_device(impl.values()), tensor);
  }
  const at::Tensor copy = empty_like_on_device(tensor);
  HostViews().of(copy).copy_(tensor);
  return copy;
}

at::Tensor HostViews::of(const at::Tensor& tensor) {
  if (!is_on_device(tensor)) return tensor;
  for (const auto& view : views_) {
    if (view.tensor.is_same(tensor)) return view.on_host;
  }
  View view = tensor.is_sparse() ? view_of_sparse(tensor) : view_of(tensor);
  views_.push_back(std::move(view));
  return views_.back().on_host;
}

HostViews::View HostViews::view_of(const at::Tensor& tensor) {
  at::Tensor on_host =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(host_storage(tensor.storage())),
                                               c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = on_host.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  return {.tensor = tensor, .on_host = on_host};
}

HostViews::View HostViews::view_of_sparse(const at::Tensor& tensor) {
  const at::Tensor indices = of(sparse_impl(tensor).indices());
  const at::Tensor values = of(sparse_impl(tensor).values());
  const at::Tensor on_host = sparse_of(indices, values, tensor);
  // A kernel that puts other elements there makes other tensors.
  return {.tensor = tensor,
          .on_host = on_host,
          .indices = sparse_impl(on_host).indices(),
          .values = sparse_impl(on_host).values()};
}

const c10::Storage& HostViews::host_storage(const c10::Storage& storage) {
  for (const auto& known : storages_) {
    if (known.device.is_alias_of(storage)) return known.host;
  }
  // The view does not own the memory. If a kernel makes it larger, the CPU's allocator gives it memory of its
  // own.
  storages_.push_back(
      {storage, c10::make_intrusive<c10::StorageImpl>(
                    c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(const_cast<void*>(storage.data()), c10::Device(c10::DeviceType::CPU)),
                    c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true)});
  return storages_.back().host;
}

void HostViews::adopt_changes() {
  for (const auto& [device, host] : storages_) {
    if (host.data() == device.data()) continue;
    resize_storage(*device.unsafeGetStorageImpl(), host.nbytes());
    std::memcpy(device.unsafeGetStorageImpl()->mutable_data(), host.data(), host.nbytes());
  }
  for (const auto& view : views_) {
    const auto& [tensor, on_host, indices, values] = view;
    if (tensor.is_sparse()) {
      adopt_sparse_changes(view);
    } else if (tensor.sizes() != on_host.sizes() || tensor.strides() != on_host.strides()) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(on_host.sizes(), on_host.strides(),
                                                          on_host.storage_offset());
    }
  }
}

void HostViews::adopt_sparse_changes(const View& view) {
  auto& from = sparse_impl(view.on_host);
  auto& to = sparse_impl(view.tensor);
  if (from.sizes() != to.sizes()) to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  if (!from.indices().is_same(view.indices) || !from.values().is_same(view.values)) {
    const c10::DeviceGuard on_device(view.tensor.device());
    to.set_indices_and_values_unsafe(copied_to_device(from.indices()), copied_to_device(from.values()));
  }
  to.set_coalesced(from.coalesced());
}

}  // namespace lockstep::test_device
