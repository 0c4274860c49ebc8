#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Where tensors of any dtypes lie in one buffer of bytes, one after another, each aligned for its dtype.
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
  /// Bytes in all.
  int64_t total() const { return total_; }
  /// Tensor number `index` in the buffer, which shares its memory; `like` has the tensor's shape and dtype.
  at::Tensor of(const at::Tensor& buffer, size_t index, const at::Tensor& like) const {
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
