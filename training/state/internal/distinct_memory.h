#pragma once

#include <torch/types.h>

#include <cstdint>
#include <unordered_set>

#include "lockstep/runtime/gradients/pending_gradient.h"

namespace lockstep {

/// Adds up the memory of tensors, each piece once.
class DistinctMemory {
 public:
  /// Returns the bytes of the tensor's memory, 0 if they were counted before.
  int64_t add(const torch::Tensor& tensor) {
    if (!tensor.defined() || is_pending(tensor)) return 0;
    if (tensor.is_sparse()) return add(tensor._indices()) + add(tensor._values());
    if (!tensor.has_storage()) return 0;
    const auto& storage = tensor.storage();
    if (!seen_.insert(storage.unsafeGetStorageImpl()).second) return 0;
    return static_cast<int64_t>(storage.nbytes());
  }

 private:
  std::unordered_set<const c10::StorageImpl*> seen_;
};

}  // namespace lockstep
