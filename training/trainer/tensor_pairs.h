#pragma once

#include <torch/types.h>

#include <cstddef>
#include <optional>

#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep::detail {

/// Dataset of the rows of a tensor.
class TensorRows {
 public:
  /// Throws InvalidArgument if `rows` is undefined or a scalar.
  explicit TensorRows(torch::Tensor rows);
  std::optional<size_t> size() const { return static_cast<size_t>(rows_.size(0)); }
  torch::Tensor get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  torch::Tensor rows_;
};

/// Dataset of the rows of two tensors, as data and target.
class TensorPairs {
 public:
  /// Throws InvalidArgument as TensorRows does, and if the tensors have different numbers of rows.
  TensorPairs(const torch::Tensor& data, const torch::Tensor& target);
  std::optional<size_t> size() const { return data_.size(); }
  Example get_batch(c10::ArrayRef<size_t> indices) const {
    return {data_.get_batch(indices), target_.get_batch(indices)};
  }

 private:
  TensorRows data_;
  TensorRows target_;
};

}  // namespace lockstep::detail
