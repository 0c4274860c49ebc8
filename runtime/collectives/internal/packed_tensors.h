#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Packs a list of tensors into a few that backends accept: one per call, dense, contiguous, of one dtype, in
/// row-major order regardless of strides, with complex numbers as pairs and without empty tensors.
///
/// A tensor that already fits is used as it is; others are copied, small ones of one dtype together. The
/// result depends only on shapes and dtypes, so every rank packs in the same way.
class PackedTensors {
 public:
  /// Tensors of at most this many bytes are packed: copying them is cheaper than another call.
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  explicit PackedTensors(const std::vector<at::Tensor>& tensors);

  /// The packed tensors, in the order to pass them to the backend.
  const std::vector<at::Tensor>& flat() const { return flat_; }
  /// Copies the contents of flat() back into the original tensors.
  void copy_back() const;

 private:
  struct Copy {
    size_t flat;
    int64_t begin;  // in elements of the flat tensor
    at::Tensor tensor;
  };
  std::vector<at::Tensor> flat_;
  std::vector<Copy> copies_;
};

/// Returns the tensor's elements in row-major order in one dimension, complex ones as pairs: a view if the
/// tensor is contiguous, otherwise a copy.
at::Tensor row_major_elements(const at::Tensor& tensor);
/// Inverse of row_major_elements(): copies the elements of `flat` from `begin` on into `tensor`.
void copy_elements(const at::Tensor& flat, int64_t begin, const at::Tensor& tensor);
/// Returns the parts of `whole` that belong to `size` ranks, each of the shape of `part`: views, without
/// history. Throws InvalidArgument, which begins with `operation`, if `whole` is not contiguous, or differs
/// in dtype or number of elements.
std::vector<at::Tensor> equal_parts(const char* operation, const at::Tensor& whole, const at::Tensor& part,
                                    int size);
/// Returns the elements of all `parts`, as row_major_elements() does, each part filled up to `most` elements:
/// a view if the parts lie one after another in memory, otherwise a copy. Complex elements count as two.
at::Tensor joined_parts(const std::vector<at::Tensor>& parts, int64_t most);

}  // namespace lockstep
