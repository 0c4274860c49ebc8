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

/// How the states of several replicas become the state of all of them.
enum class StateMerge {
  kSum,          ///< element by element, in float64
  kConcatenate,  ///< along axis 0, in replica order
};

/// What a metric has counted: tensors whose number, and for sums also shapes, are the same on every replica,
/// updated or not.
using MetricState = std::vector<torch::Tensor>;

template <typename M>
concept RestorableMetric = requires(M& metric, MetricState state) {
  metric.restore(std::move(state));
};

/// Sets a tensor of a metric's state to 0 where it lies, for reset(); leaves an undefined one alone.
void clear_state(torch::Tensor& state);

/// What result() and reset() need of a metric: the state of a replica's updates, how states are merged, and
/// the value of a merged state, which lies on the CPU.
///
/// One that has `restore(state)` too goes on from a state of its own or a merged one, which lies on its
/// replica's device and is its to keep: training that is resumed within an epoch needs that.
template <typename M>
concept Metric = requires(M& metric, const M& constant, const MetricState& state) {
  { M::kMerge } -> std::convertible_to<StateMerge>;
  { constant.state() } -> std::same_as<MetricState>;
  constant.value(state);
  metric.reset();
};

/// The states as one, on the CPU; sums are float64. Waits for the devices. Throws InvalidArgument where the
/// states do not fit together.
MetricState merge_states(StateMerge merge, const std::vector<MetricState>& states);
/// The same over all replicas of all workers, each of which calls it: a collective, which blocks and throws
/// as Strategy::reduce() and Strategy::gather().
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

/// The metric over all replicas of this process, which is exact however the examples were cut into shards.
/// Waits for the devices; call it outside replica functions. Throws DeviceFailure where a device has failed
/// meanwhile, OutOfMemory where one has no memory left.
template <Metric M>
auto result(const PerReplica<M>& metric) {
  return metric.local_values().front().value(merge_states(M::kMerge, detail::states_of(metric, 0)));
}

/// The same over all replicas of all workers, each of which calls it: a collective, which blocks and throws
/// as Strategy::reduce().
template <Metric M>
auto result(Strategy& strategy, const PerReplica<M>& metric) {
  const PerReplica states(detail::states_of(metric, strategy.first_local_replica()), metric.devices());
  return metric.local_values().front().value(merge_states(strategy, M::kMerge, states));
}

/// Begins anew on every replica.
template <Metric M>
void reset(PerReplica<M>& metric) {
  for (M& local : metric.local_values()) local.reset();
}

}  // namespace lockstep
