#pragma once

#include <ATen/core/Tensor.h>

#include <bit>
#include <concepts>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Records the values and addresses that a CUDA graph keeps from its capture, to compare them with later
/// ones: values that a replay would repeat, and memory that it would read and write.
///
/// Example:
///
///     Fingerprint captured, now;
///     captured.add_identity(parameter);
///     now.add_identity(parameter);
///     if (now == captured) graph->replay();
class Fingerprint {
 public:
  template <std::integral T>
  void add(T value) {
    words_.push_back(static_cast<uint64_t>(value));
  }
  void add(double value) { words_.push_back(std::bit_cast<uint64_t>(value)); }
  void add(const void* address) { words_.push_back(reinterpret_cast<uintptr_t>(address)); }

  /// Adds a tensor that is read and written in place.
  void add_identity(const at::Tensor& tensor) {
    if (!tensor.defined()) return add(0);
    add(tensor.has_storage() ? tensor.const_data_ptr() : nullptr);
    add(tensor.unsafeGetTensorImpl());
    add(tensor.requires_grad());
  }
  /// Adds a tensor whose values are copied into another one of the same layout.
  void add_layout(const at::Tensor& tensor) {
    if (!tensor.defined()) return add(0);
    add(static_cast<int8_t>(tensor.scalar_type()));
    add(static_cast<int8_t>(tensor.device().type()));
    add(tensor.device().index());
    add(tensor.dim());
    for (const int64_t size : tensor.sizes()) add(size);
    for (const int64_t stride : tensor.strides()) add(stride);
  }
  /// Adds all that another one has recorded.
  void add(const Fingerprint& other) {
    words_.insert(words_.end(), other.words_.begin(), other.words_.end());
    is_settled_ = is_settled_ && other.is_settled_;
  }
  /// Marks that something is about to change. The fingerprint then equals no other.
  void add_unsettled() { is_settled_ = false; }

  bool operator==(const Fingerprint& other) const {
    return is_settled_ && other.is_settled_ && words_ == other.words_;
  }

 private:
  std::vector<uint64_t> words_;
  bool is_settled_ = true;
};

}  // namespace lockstep
