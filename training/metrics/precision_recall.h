#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

struct PrecisionRecallOptions {
  /// Number of classes. 1 means a binary decision, with scores [n] or [n, 1] and targets 0 or 1. Otherwise
  /// the outputs are logits [n, num_classes], of which the largest is the prediction.
  int64_t num_classes = 1;
  /// For a binary decision: scores above it are positive. Use 0.5 for probabilities and 0 for logits.
  double threshold = 0.5;
  /// For several classes: the class whose value is computed. If empty, the value is the mean over the classes
  /// (macro average) that occur among predictions or targets.
  std::optional<int64_t> class_id;
};

/// Counts true positives, false positives and false negatives of each class, for Precision and Recall.
///
/// Example:
///
///     Precision precision({.num_classes = 3});
///     precision.update(logits, targets);
///     torch::Tensor counts = precision.state()[0];
class PredictionCounts {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument if num_classes is below 1 or class_id is out of range. `name` starts the error
  /// messages.
  PredictionCounts(const char* name, const PrecisionRecallOptions& options);

  /// Adds examples. `targets` are integers, or one-hot as for CategoricalAccuracy; for a binary decision they
  /// are 0, 1 or booleans, of any dtype. `weights` is [n] or undefined, which means all ones. Throws
  /// InvalidArgument for other shapes.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset();
  /// Returns {[3, classes]}: true positives, false positives and false negatives, in float64.
  MetricState state() const;
  void restore(MetricState state) { counts_ = std::move(state[0]); }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(counts_);
  }

 protected:
  /// Returns hits / (hits + row `other` of the counts), of the class or averaged over the classes; 0 if the
  /// denominator is 0.
  double share(const MetricState& state, int64_t other) const;

 private:
  const char* name_;
  PrecisionRecallOptions options_;
  torch::Tensor counts_;  // undefined until the first update
};

/// Fraction of the examples predicted to be of a class that are: TP / (TP + FP), or 0 if none are predicted.
/// See Mean for how to make, update and read metrics.
///
/// Example:
///
///     MetricList metrics = {{"precision", Precision({.num_classes = 10})}};
class Precision : public PredictionCounts {
 public:
  explicit Precision(const PrecisionRecallOptions& options = {}) : PredictionCounts("Precision", options) {}
  double value(const MetricState& state) const { return share(state, 1); }
};

/// Fraction of the examples of a class that are predicted to be: TP / (TP + FN), or 0 if there are none.
///
/// Example:
///
///     MetricList metrics = {{"recall", Recall({.num_classes = 10})}};
class Recall : public PredictionCounts {
 public:
  explicit Recall(const PrecisionRecallOptions& options = {}) : PredictionCounts("Recall", options) {}
  double value(const MetricState& state) const { return share(state, 2); }
};

}  // namespace lockstep
