#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <memory>

namespace lockstep {

// These give and take the memory of all tensors that share one storage, which stays the same.

/// Gives a contiguous tensor, which fills its storage, new memory. Its contents are undefined.
inline void allocate_memory(const at::Tensor& tensor) {
  const c10::OptionalDeviceGuard on_device(tensor.device());
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

/// Frees the memory.
inline void release_memory(const at::Tensor& tensor) {
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage.set_nbytes(0);
}

/// Gives the tensor all memory of `other`, which lasts as long as one of both has it. Do not take it from the
/// tensor again.
inline void alias_memory(const at::Tensor& tensor, const at::Tensor& other) {
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  auto owner = std::make_unique<c10::Storage>(other.storage());
  void* const memory = owner->mutable_data();
  const auto drop = [](void* shared) {
    const std::unique_ptr<c10::Storage> last(static_cast<c10::Storage*>(shared));
  };
  storage.set_data_ptr_noswap(at::DataPtr(memory, owner.release(), drop, other.device()));
  storage.set_nbytes(other.storage().nbytes());
}

/// Returns a tensor of the same sizes with the memory, which the other tensors lose.
inline at::Tensor take_memory(const at::Tensor& tensor) {
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = storage.nbytes();
  const c10::Storage taken(c10::Storage::use_byte_size_t(), bytes,
                           storage.set_data_ptr(at::DataPtr(nullptr, tensor.device())), storage.allocator(),
                           /*resizable=*/false);
  storage.set_nbytes(0);
  return at::empty({0}, tensor.options()).set_(taken, 0, tensor.sizes());
}

}  // namespace lockstep
