#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// Counts how many examples of each class were predicted to be of which. See Mean for how to make, update and
/// read metrics.
///
/// Example:
///
///     ConfusionMatrix confusion(3);
///     confusion.update(logits, targets);
///     torch::Tensor counts = confusion.value(merge_states(StateMerge::kSum, {confusion.state()}));
class ConfusionMatrix {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument if num_classes is below 2.
  explicit ConfusionMatrix(int64_t num_classes);

  /// Adds examples. `logits` are [n, num_classes]; the other arguments are those of
  /// CategoricalAccuracy::update(). Throws InvalidArgument for other shapes. Targets outside the classes are
  /// ignored, because detecting them would mean waiting for the device.
  void update(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset();

  int64_t num_classes() const { return num_classes_; }
  MetricState state() const;
  void restore(MetricState state) { counts_ = std::move(state[0]); }
  /// Returns [num_classes, num_classes] in float64 on the CPU: the sum of the weights (by default the number)
  /// of the examples of class `row` whose largest logit was at class `column`.
  torch::Tensor value(const MetricState& state) const;
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(counts_);
  }

 private:
  int64_t num_classes_;
  torch::Tensor counts_;  // undefined until the first update
};

}  // namespace lockstep
