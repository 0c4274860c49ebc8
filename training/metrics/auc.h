#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// The area under the ROC curve of a yes-or-no question: the probability that an example of class 1 has a
/// larger score than one of class 0, equal scores counting half (Hanley and McNeil, "The Meaning and Use of
/// the Area under a Receiver Operating Characteristic (ROC) Curve", 1982).
///
/// Exact: it keeps every score (24 bytes an example) where other libraries count in bins. A CUDA graph cannot
/// capture that. See Mean for how metrics are made, used and read.
class Auc {
 public:
  static constexpr StateMerge kMerge = StateMerge::kConcatenate;

  /// `scores` are [n] or [n, 1], of any scale, `targets` 0 and 1 or booleans; `weights` is [n], undefined for
  /// all ones. Throws InvalidArgument for other shapes.
  void update(const torch::Tensor& scores, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset() { updates_.clear(); }

  /// {[n, 3]}: score, target and weight of each example, in float64.
  MetricState state() const;
  void restore(MetricState state) { updates_ = std::move(state); }
  /// NaN where one of the classes has no example, and where a score is NaN.
  double value(const MetricState& state) const;

 private:
  std::vector<torch::Tensor> updates_;
};

}  // namespace lockstep
