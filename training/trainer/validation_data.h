#pragma once

#include <torch/types.h>

#include <concepts>
#include <functional>
#include <optional>
#include <utility>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/trainer/tensor_pairs.h"

namespace lockstep {

/// Data that fit() evaluates after every epoch: a distributed dataset, a dataset that fit() distributes in
/// its own order, or two tensors; by default none.
///
/// Example:
///
///     trainer.fit(x, y, {.epochs = 5, .validation = {x_test, y_test}});
template <typename Batch>
class ValidationData {
 public:
  using Batches = DistributedDataset<Batch>;

  ValidationData() = default;
  // Not explicit, so that each can be written after `.validation =`.
  ValidationData(std::nullopt_t) {}
  ValidationData(Batches batches) : ValidationData(std::optional<Batches>(std::move(batches))) {}
  ValidationData(std::optional<Batches> batches) {
    if (batches) distribute_ = [made = *std::move(batches)](auto&&...) { return made; };
  }
  /// A dataset with size() and get_batch(), such as LibTorch's.
  template <IndexedDataset D>
  requires std::same_as<BatchOf<D>, Batch> && std::copy_constructible<D> ValidationData(D dataset)
      : distribute_([dataset = std::move(dataset)](Strategy& strategy, const DistributeOptions& options) {
          return strategy.distribute_dataset(dataset, options);
        }) {}
  /// The rows of `x` as examples, with their targets in `y`. Throws InvalidArgument if `x` and `y` have
  /// different numbers of rows.
  ValidationData(const torch::Tensor& x, const torch::Tensor& y) requires std::same_as<Batch, Example>
      : ValidationData(detail::TensorPairs(x, y)) {}

  bool has_value() const { return static_cast<bool>(distribute_); }
  /// Returns the batches, or nothing if there is no data. `options` are for data that is not distributed yet.
  std::optional<Batches> distribute(Strategy& strategy, const DistributeOptions& options) const {
    if (!distribute_) return std::nullopt;
    return distribute_(strategy, options);
  }

 private:
  std::function<Batches(Strategy&, const DistributeOptions&)> distribute_;
};

}  // namespace lockstep
