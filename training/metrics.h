#pragma once

#include <torch/types.h>

#include <concepts>

#include "lockstep/runtime/per_replica.h"
#include "lockstep/strategies/device_error.h"
#include "lockstep/strategies/strategy.h"

namespace lockstep {

/// What result() and reset() need of a metric: a weighted total over everything it was updated with, and the
/// sum of the weights.
template <typename M>
concept Metric = requires(M& metric, const M& constant) {
  { constant.total() } -> std::convertible_to<double>;
  { constant.count() } -> std::convertible_to<double>;
  metric.reset();
};

/// The mean of all values that it was updated with.
///
/// Metrics are local to their replica: `auto loss = strategy.scope([](ReplicaContext&) { return Mean(); });`
/// makes one each, replica functions get theirs as `Mean&`, and `result(loss)` brings them together. The
/// state lies on the device of the first update and is float64; update() neither synchronises with that
/// device nor records gradients. Used by one thread at a time.
class Mean {
 public:
  /// Adds every element of `values`, of any shape; none of them where it is empty. `weights`, undefined for
  /// all ones, must broadcast to the values' shape. Throws InvalidArgument where it does not.
  void update(const torch::Tensor& values, const torch::Tensor& weights = {});
  void reset();

  /// sum(weight * value). Waits for the device, as count() does.
  double total() const;
  /// The sum of the weights: the number of values where none were given.
  double count() const;

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

/// The share of examples whose largest logit is at the target. See Mean for how it is made, used and read.
class CategoricalAccuracy {
 public:
  /// `logits` are [n, classes], `targets` classes as integers [n], or one-hot (or probabilities) [n,
  /// classes], where the largest counts; equal logits count as the first of them. `weights` is [n], undefined
  /// for all ones. An empty shard, n = 0, adds nothing. Throws InvalidArgument for other shapes and for
  /// floating-point targets [n].
  void update(const torch::Tensor& logits, const torch::Tensor& targets, const torch::Tensor& weights = {});
  void reset() { matches_.reset(); }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    matches_.for_each_tensor(visit);
  }

  double total() const { return matches_.total(); }
  double count() const { return matches_.count(); }

 private:
  Mean matches_;
};

/// The metric over all replicas of this process: the sum of the totals over the sum of the counts, which is
/// exact however the examples were cut into shards; 0 where nothing was added. Waits for the devices; call it
/// outside replica functions. Throws DeviceFailure where a device has failed
/// meanwhile, OutOfMemory where one has no memory left.
template <Metric M>
double result(const PerReplica<M>& metric) {
  double total = 0;
  double count = 0;
  for (size_t replica = 0; replica < metric.local_values().size(); ++replica) {
    const M& local = metric.local_values()[replica];
    on_replica("result", static_cast<int>(replica), (*metric.devices())[replica], [&] {
      total += local.total();
      count += local.count();
    });
  }
  return count == 0 ? 0 : total / count;
}

/// The same over all replicas of all workers, each of which calls it: a collective, which blocks and throws
/// as Strategy::reduce().
template <Metric M>
double result(Strategy& strategy, const PerReplica<M>& metric) {
  std::vector<double> totals;
  std::vector<double> counts;
  for (size_t replica = 0; replica < metric.local_values().size(); ++replica) {
    const M& local = metric.local_values()[replica];
    on_replica("result", strategy.first_local_replica() + static_cast<int>(replica),
               (*metric.devices())[replica], [&] {
                 totals.push_back(local.total());
                 counts.push_back(local.count());
               });
  }
  const double total = strategy.reduce(ReduceOp::kSum, PerReplica(totals, metric.devices()));
  const double count = strategy.reduce(ReduceOp::kSum, PerReplica(counts, metric.devices()));
  return count == 0 ? 0 : total / count;
}

/// Begins anew on every replica.
template <Metric M>
void reset(PerReplica<M>& metric) {
  for (M& local : metric.local_values()) local.reset();
}

}  // namespace lockstep
