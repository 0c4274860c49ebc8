#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lockstep {

/// Recognises a tensor later and detects writes to it, without keeping its memory alive.
class TensorMark {
 public:
  /// Marks nothing.
  TensorMark() = default;
  explicit TensorMark(const at::Tensor& tensor)
      : tensor_(Weak(tensor.getIntrusivePtr())), version_(tensor._version()) {}

  bool is_set() const { return tensor_.has_value(); }
  /// Returns true if `tensor` is the marked object itself; sharing its memory is not enough.
  bool is(const at::Tensor& tensor) const {
    return tensor_ && tensor.defined() && tensor_->lock().get() == tensor.unsafeGetTensorImpl();
  }
  /// Returns the number of in-place writes to `tensor`, which must be the marked one, since the mark was
  /// made.
  int64_t writes_to(const at::Tensor& tensor) const { return tensor._version() - version_; }
  /// Ignores the writes so far, as if they had preceded the mark.
  void excuse_writes() {
    if (!tensor_) return;
    if (const auto tensor = tensor_->lock()) version_ = tensor->version_counter().current_version();
  }

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  std::optional<Weak> tensor_;
  int64_t version_ = 0;
};

}  // namespace lockstep
