#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// How many examples of each class were taken for which. See Mean for how metrics are made, used and read.
class ConfusionMatrix {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument for less than two classes.
  explicit ConfusionMatrix(int64_t num_classes);

  /// `logits` are [n, num_classes], the rest as CategoricalAccuracy's update(). Throws InvalidArgument for
  /// other shapes. Targets outside of the classes count nowhere: seeing them would mean to wait for the
  /// device.
  void update(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset();

  int64_t num_classes() const { return num_classes_; }
  MetricState state() const;
  void restore(MetricState state) { counts_ = std::move(state[0]); }
  /// [num_classes, num_classes] in float64 on the CPU: the sum of the weights, or the number, of the examples
  /// of class `row` whose largest logit was at class `column`.
  torch::Tensor value(const MetricState& state) const;
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(counts_);
  }

 private:
  int64_t num_classes_;
  torch::Tensor counts_;  // undefined: nothing was ever added
};

}  // namespace lockstep
