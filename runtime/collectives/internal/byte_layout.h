#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The positions of tensors of any dtypes in one byte buffer, one after another, each aligned for its dtype.
class ByteLayout {
 public:
  ByteLayout() = default;
  explicit ByteLayout(const std::vector<at::Tensor>& tensors) {
    for (const auto& tensor : tensors) add(tensor);
  }

  void add(const at::Tensor& tensor) {
    constexpr int64_t kAlignment = 16;
    begins_.push_back(total_);
    total_ += (bytes_of(tensor) + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// Returns the size of the buffer in bytes.
  int64_t total() const { return total_; }
  /// Returns a view of tensor number `index` in `buffer`. `like` gives the tensor's shape and dtype.
  at::Tensor of(const at::Tensor& buffer, size_t index, const at::Tensor& like) const {
    // A row of an empty buffer may begin where no element of the dtype can.
    if (like.numel() == 0) return at::empty_like(like);
    return buffer.narrow(0, begins_[index], bytes_of(like)).view(like.scalar_type()).view(like.sizes());
  }

 private:
  static int64_t bytes_of(const at::Tensor& tensor) {
    return tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }

  std::vector<int64_t> begins_;
  int64_t total_ = 0;
};

}  // namespace lockstep
