#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

/// Examples held in memory as one or two tensors, with one example per row. The interface is that of
/// CollatedDataset.
///
/// Example:
///
///     TensorDataset examples(torch::rand({100, 8}), torch::rand({100, 1}));
///     auto batches = strategy.distribute_dataset(examples, {.global_batch_size = 20});
class TensorDataset {
 public:
  /// Examples without targets: `target` of their batches is undefined. `data` is as below.
  explicit TensorDataset(at::Tensor data);
  /// `data` and `target` are [n, ...], of any type, on one device. The dataset shares their memory. Throws
  /// std::invalid_argument if one is undefined or a scalar, or if their numbers of rows differ.
  TensorDataset(at::Tensor data, at::Tensor target);

  std::optional<size_t> size() const;

  /// Returns copies of the rows, on the tensors' device.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;

  /// Returns the tensors' types and sizes, and a checksum of up to 256 rows of those with whole numbers.
  /// Floating-point values are left out, because processors may round the arithmetic that made them
  /// differently. Copies these rows to the CPU.
  std::string identity() const;

  /// Returns the batch unchanged.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  const at::Tensor& data() const { return data_; }
  /// Undefined if there are no targets.
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// Throws std::invalid_argument, with a message that begins with `[dataset]`, unless every index is below
/// `size`.
void check_indices(c10::ArrayRef<size_t> indices, size_t size, const char* dataset);

}  // namespace lockstep
