#pragma once

// Internal to the test device: the memory of its devices, and the host's pinned memory.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/tests/device/test_device_state.h"

namespace lockstep::test_device {

/// Allocates on the calling thread's current device and stream.
c10::DeviceAllocator& device_allocator();
at::HostAllocator& pinned_allocator();

/// Returns the device whose memory `address` is in, if any.
std::optional<c10::Device> device_of_memory(const void* address);
bool is_pinned(const void* address);

bool is_on_device(const at::Tensor& tensor);
/// Returns the memory of `tensor` from the first to the last byte of an element: two ranges for a sparse
/// tensor, none if it is not on a test device.
std::vector<StreamOrder::Range> ranges_of(const at::Tensor& tensor);
/// Returns a copy of a CPU tensor, dense or sparse, on the current device.
at::Tensor copied_to_device(const at::Tensor& tensor);

/// Gives `storage` this size on its own device, with the bytes that it had as far as there is room.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

/// CPU tensors on the memory of tensors of the test device, for one call of a CPU kernel. A tensor has one
/// view, and tensors that share a storage have views that share one, so that kernels find out about aliases.
class HostViews {
 public:
  /// Returns the view of a tensor on a test device, and every other tensor itself.
  at::Tensor of(const at::Tensor& tensor);
  /// Gives each tensor the shape, the storage and the sparse elements that a kernel has given its view.
  void adopt_changes();

 private:
  struct SharedStorage {
    c10::Storage device;
    c10::Storage host;
  };
  struct View {
    at::Tensor tensor;
    at::Tensor on_host;
    // Of a sparse tensor, on the host.
    at::Tensor indices;
    at::Tensor values;
  };

  View view_of(const at::Tensor& tensor);
  View view_of_sparse(const at::Tensor& tensor);
  const c10::Storage& host_storage(const c10::Storage& storage);
  static void adopt_sparse_changes(const View& view);

  std::vector<SharedStorage> storages_;
  std::vector<View> views_;
};

}  // namespace lockstep::test_device
