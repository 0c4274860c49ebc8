#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

struct PrecisionRecallOptions {
  /// 1: a yes-or-no question, with scores [n] or [n, 1] and targets 0 or 1. Else logits [n, num_classes], of
  /// which the largest is the prediction.
  int64_t num_classes = 1;
  /// Of a yes-or-no question: scores above it are a yes. 0.5 for probabilities, 0 for logits.
  double threshold = 0.5;
  /// Of several classes: this one's value; none: the mean over the classes (macro average), those that occur
  /// neither among predictions nor targets left out.
  std::optional<int64_t> class_id;
};

/// What Precision and Recall count of each class: true positives, false positives and false negatives.
class PredictionCounts {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument for less than one class and for a class_id that is none of them. `name` begins
  /// the messages.
  PredictionCounts(const char* name, const PrecisionRecallOptions& options);

  /// `targets` are integers (0, 1 or booleans for a yes-or-no question; any type there), or one-hot as
  /// CategoricalAccuracy's; `weights` is [n], undefined for all ones. Throws InvalidArgument for other
  /// shapes.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset();
  /// [3, classes]: true positives, false positives, false negatives, in float64.
  MetricState state() const;
  void restore(MetricState state) { counts_ = std::move(state[0]); }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(counts_);
  }

 protected:
  /// hits / (hits + row `other` of the counts) of the class or over the classes; 0 where there is none.
  double share(const MetricState& state, int64_t other) const;

 private:
  const char* name_;
  PrecisionRecallOptions options_;
  torch::Tensor counts_;  // undefined: nothing was ever added
};

/// The share of the examples predicted to be of a class that are: TP / (TP + FP). 0 where none is predicted.
/// See Mean for how metrics are made, used and read.
class Precision : public PredictionCounts {
 public:
  explicit Precision(const PrecisionRecallOptions& options = {}) : PredictionCounts("Precision", options) {}
  double value(const MetricState& state) const { return share(state, 1); }
};

/// The share of the examples of a class that are predicted to be: TP / (TP + FN). 0 where there is none.
class Recall : public PredictionCounts {
 public:
  explicit Recall(const PrecisionRecallOptions& options = {}) : PredictionCounts("Recall", options) {}
  double value(const MetricState& state) const { return share(state, 2); }
};

}  // namespace lockstep
