#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/runtime/devices/device_error.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// How the states of several replicas are merged.
enum class StateMerge {
  kSum,          ///< Element-wise sum in float64.
  kConcatenate,  ///< Concatenation along axis 0, in replica order.
};

/// State of a metric. The number of its tensors, and for sums also their shapes, are the same on every
/// replica, even before the first update.
using MetricState = std::vector<torch::Tensor>;

template <typename M>
concept RestorableMetric = requires(M& metric, MetricState state) {
  metric.restore(std::move(state));
};

/// Sets a tensor of a metric's state to 0 in place, for reset(). Does nothing if it is undefined.
void clear_state(torch::Tensor& state);

/// Interface that result() and reset() need: `state()` returns the state of a replica's updates, `kMerge`
/// says how to merge states, and `value(state)` computes the value of a merged state, which is on the CPU.
///
/// A metric that also has `restore(state)` can continue from its own state or a merged one; the state is on
/// its replica's device and belongs to it. Resuming training within an epoch needs that.
template <typename M>
concept Metric = requires(M& metric, const M& constant, const MetricState& state) {
  { M::kMerge } -> std::convertible_to<StateMerge>;
  { constant.state() } -> std::same_as<MetricState>;
  constant.value(state);
  metric.reset();
};

/// Merges states into one on the CPU; sums are float64. Waits for the devices. Throws InvalidArgument if the
/// states do not match.
MetricState merge_states(StateMerge merge, const std::vector<MetricState>& states);
/// Merges the states of all replicas of all workers. A collective, which blocks and throws as
/// Strategy::reduce() and Strategy::gather() do.
MetricState merge_states(Strategy& strategy, StateMerge merge, const PerReplica<MetricState>& states);

namespace detail {

template <Metric M>
std::vector<MetricState> states_of(const PerReplica<M>& metric, int first_replica) {
  std::vector<MetricState> states;
  for (size_t replica = 0; replica < metric.local_values().size(); ++replica) {
    with_device_errors(
        "result", first_replica + static_cast<int>(replica), (*metric.devices())[replica],
        [&] { states.push_back(merge_states(M::kMerge, {metric.local_values()[replica].state()})); });
  }
  return states;
}

}  // namespace detail

/// Returns the value over all replicas of this process. It is exact however the examples were cut into
/// shards. Waits for the devices; call it outside replica functions. Throws DeviceFailure if a device has
/// failed, and OutOfMemory if one has no memory left.
template <Metric M>
auto result(const PerReplica<M>& metric) {
  return metric.local_values().front().value(merge_states(M::kMerge, detail::states_of(metric, 0)));
}

/// Returns the value over all replicas of all workers. A collective, which blocks and throws as
/// Strategy::reduce() does.
template <Metric M>
auto result(Strategy& strategy, const PerReplica<M>& metric) {
  const PerReplica states(detail::states_of(metric, strategy.first_local_replica()), metric.devices());
  return metric.local_values().front().value(merge_states(strategy, M::kMerge, states));
}

/// Resets the metric on every replica.
template <Metric M>
void reset(PerReplica<M>& metric) {
  for (M& local : metric.local_values()) local.reset();
}

}  // namespace lockstep
