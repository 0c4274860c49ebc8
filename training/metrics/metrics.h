#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// Mean of all values that it was updated with.
///
/// Metrics are local to their replica: scope() makes one for each replica, replica functions get theirs as
/// `Mean&`, and result() combines them. The state is float64 and is on the device of the first update.
/// update() neither synchronizes with that device nor records gradients. Not thread-safe.
///
/// Example:
///
///     auto loss = strategy.scope([](ReplicaContext&) { return Mean(); });
///     const auto step = [](ReplicaContext&, Mean& mine, const torch::Tensor& x) { mine.update(x); };
///     strategy.run(step, loss, losses);
///     double mean = result(loss);
class Mean {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Adds every element of `values`, which may be empty and of any shape. `weights`, if undefined, are all
  /// ones; otherwise they must broadcast to the shape of `values`. Throws InvalidArgument if they do not.
  void update(const torch::Tensor& values, const torch::Tensor& weights = {});
  void reset();

  /// Returns sum(weight * value). Waits for the device, as count() does.
  double total() const;
  /// Returns the sum of the weights: the number of values if none were given.
  double count() const;

  /// Returns {total, count}, two float64 scalars.
  MetricState state() const;
  void restore(MetricState state);
  /// Returns total / count, or 0 if nothing was added.
  double value(const MetricState& state) const;

  /// Calls `visit(tensor)` for each tensor of the state. update() and reset() change these in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(total_);
    visit(weight_);
  }

 private:
  torch::Tensor total_;   // undefined until the first update
  torch::Tensor weight_;  // on the device too, because a CUDA graph replays no host code
};

/// Fraction of examples whose target is among the `k` largest logits. See Mean for how to make, update and
/// read metrics.
///
/// Example:
///
///     MetricList metrics = {{"top_5_accuracy", TopKCategoricalAccuracy(5)}};
class TopKCategoricalAccuracy {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument if k is below 1.
  explicit TopKCategoricalAccuracy(int64_t k = 5);

  /// Adds examples. `logits` are [n, classes]. `targets` are integer classes [n], or one-hot (or
  /// probabilities) [n, classes], of which the largest counts. Of equal logits, earlier ones count as larger.
  /// `weights` is [n] or undefined, which means all ones. An empty shard, n = 0, adds nothing. Throws
  /// InvalidArgument for other shapes and for floating-point targets [n].
  void update(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset() { matches_.reset(); }

  /// Returns the sum of the weights of the matching examples. count() returns that of all examples.
  double total() const { return matches_.total(); }
  double count() const { return matches_.count(); }
  MetricState state() const { return matches_.state(); }
  void restore(MetricState state) { matches_.restore(std::move(state)); }
  double value(const MetricState& state) const { return matches_.value(state); }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    matches_.for_each_tensor(visit);
  }

 private:
  int64_t k_;
  Mean matches_;
};

/// Fraction of examples whose largest logit is at the target.
///
/// Example:
///
///     MetricList metrics = {{"accuracy", CategoricalAccuracy()}};
class CategoricalAccuracy : public TopKCategoricalAccuracy {
 public:
  CategoricalAccuracy() : TopKCategoricalAccuracy(1) {}
};

}  // namespace lockstep
