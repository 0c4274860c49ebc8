#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// Area under the ROC curve for two classes: the probability that an example of class 1 has a larger score
/// than one of class 0, where equal scores count half (Hanley and McNeil, "The Meaning and Use of the Area
/// under a Receiver Operating Characteristic (ROC) Curve", 1982).
///
/// Exact: it keeps every score (24 bytes per example) instead of counting in bins. A CUDA graph cannot
/// capture it. See Mean for how to make, update and read metrics.
///
/// Example:
///
///     Auc auc;
///     auc.update(scores, targets);
///     double area = auc.value(merge_states(Auc::kMerge, {auc.state()}));
class Auc {
 public:
  static constexpr StateMerge kMerge = StateMerge::kConcatenate;

  /// Adds examples. `scores` are [n] or [n, 1] on any scale, `targets` are 0 and 1 or booleans, and `weights`
  /// is [n] or undefined, which means all ones. Throws InvalidArgument for other shapes.
  void update(const torch::Tensor& scores, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset() { updates_.clear(); }

  /// Returns {[n, 3]}: score, target and weight of each example, in float64.
  MetricState state() const;
  void restore(MetricState state) { updates_ = std::move(state); }
  /// Returns the area; NaN if a class has no examples or a score is NaN.
  double value(const MetricState& state) const;

 private:
  std::vector<torch::Tensor> updates_;
};

}  // namespace lockstep
