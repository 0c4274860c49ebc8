#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// A list of tensors as few contiguous ones, in the way that backends take them: one a call, dense, of one
/// dtype, in row-major order whatever the strides, complex numbers as pairs, none without elements.
///
/// A tensor that is fit as it is stays itself; the others are copied, small ones of one dtype together. What
/// is made of a list depends on the shapes and dtypes alone, so that every rank gets the same.
class PackedTensors {
 public:
  /// Tensors of at most so many bytes are packed: copying them costs less than another call.
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  explicit PackedTensors(const std::vector<at::Tensor>& tensors);

  /// In the order in which they are to be handed over.
  const std::vector<at::Tensor>& flat() const { return flat_; }
  /// Copies back what came in flat().
  void copy_back() const;

 private:
  struct Copy {
    size_t flat;
    int64_t begin;  // in elements of flat
    at::Tensor tensor;
  };
  std::vector<at::Tensor> flat_;
  std::vector<Copy> copies_;
};

/// A tensor's elements in row-major order in one dimension, complex ones as pairs: its own memory where that
/// is contiguous, else a copy.
at::Tensor row_major_elements(const at::Tensor& tensor);
/// The way back: the elements of `flat` from `begin` on into `tensor`.
void copy_elements(const at::Tensor& flat, int64_t begin, const at::Tensor& tensor);

}  // namespace lockstep
