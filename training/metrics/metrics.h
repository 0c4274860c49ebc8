#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// The mean of all values that it was updated with.
///
/// Metrics are local to their replica: `auto loss = strategy.scope([](ReplicaContext&) { return Mean(); });`
/// makes one each, replica functions get theirs as `Mean&`, and `result(loss)` brings them together. The
/// state lies on the device of the first update and is float64; update() neither synchronises with that
/// device nor records gradients. Used by one thread at a time.
class Mean {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Adds every element of `values`, of any shape; none of them where it is empty. `weights`, undefined for
  /// all ones, must broadcast to the values' shape. Throws InvalidArgument where it does not.
  void update(const torch::Tensor& values, const torch::Tensor& weights = {});
  void reset();

  /// sum(weight * value). Waits for the device, as count() does.
  double total() const;
  /// The sum of the weights: the number of values where none were given.
  double count() const;

  /// {total, count}, float64 scalars.
  MetricState state() const;
  void restore(MetricState state);
  /// total / count; 0 where nothing was added.
  double value(const MetricState& state) const;

  /// Calls `visit(tensor)` for the tensors of the state, which updates and reset() change in place.
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    visit(total_);
    visit(weight_);
  }

 private:
  torch::Tensor total_;   // undefined: nothing was ever added
  torch::Tensor weight_;  // on the device too: a CUDA graph repeats nothing on the host
};

/// The share of examples whose target is among the `k` largest logits. See Mean for how it is made, used and
/// read.
class TopKCategoricalAccuracy {
 public:
  static constexpr StateMerge kMerge = StateMerge::kSum;

  /// Throws InvalidArgument for a k below 1.
  explicit TopKCategoricalAccuracy(int64_t k = 5);

  /// `logits` are [n, classes], `targets` classes as integers [n], or one-hot (or probabilities) [n,
  /// classes], where the largest counts; of equal logits the first ones count as larger. `weights` is [n],
  /// undefined for all ones. An empty shard, n = 0, adds nothing. Throws InvalidArgument for other shapes and
  /// for floating-point targets [n].
  void update(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset() { matches_.reset(); }

  /// The weights of the examples that matched, and of all.
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

/// The share of examples whose largest logit is at the target.
class CategoricalAccuracy : public TopKCategoricalAccuracy {
 public:
  CategoricalAccuracy() : TopKCategoricalAccuracy(1) {}
};

}  // namespace lockstep
