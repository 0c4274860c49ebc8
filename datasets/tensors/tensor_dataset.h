#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <optional>

namespace lockstep {

/// Examples that lie in memory as two tensors, one example a row. See CollatedDataset for the interface.
class TensorDataset {
 public:
  /// `data` and `target` are [n, ...], of any type, on one device. The dataset shares their memory. Throws
  /// std::invalid_argument where they are undefined, have no dimension, or hold different numbers of rows.
  TensorDataset(at::Tensor data, at::Tensor target);

  std::optional<size_t> size() const;

  /// The rows of both tensors, copied, on the tensors' device.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;

  /// The batch as it is.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  const at::Tensor& data() const { return data_; }
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// Throws std::invalid_argument, beginning with `[dataset]`, unless every index is below `size`.
void check_indices(c10::ArrayRef<size_t> indices, size_t size, const char* dataset);

}  // namespace lockstep
