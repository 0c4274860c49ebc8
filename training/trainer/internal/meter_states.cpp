#include "lockstep/training/trainer/internal/meter_states.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/internal/replica_states.h"

namespace lockstep {
namespace {

/// One of the metrics that sum up a replica's steps.
struct Meter {
  std::string name;
  StateMerge merge;
  std::function<MetricState()> state;
  std::function<void(MetricState)> restore;
  /// Counts the steps, which are the same on all replicas, rather than the examples, which differ.
  bool is_of_steps = false;
};

template <typename M>
Meter meter_of(const std::string& name, StateMerge merge, M& metric, bool is_of_steps = false) {
  return {name, merge, [&metric] { return metric.state(); },
          [&metric](MetricState state) { metric.restore(std::move(state)); }, is_of_steps};
}

std::vector<Meter> meters_of(StepMeters& meters) {
  std::vector<Meter> all{
      meter_of("loss", StateMerge::kSum, meters.loss),
      meter_of("gradient_norm", StateMerge::kSum, meters.gradient_norm, /*is_of_steps=*/true),
      meter_of("finite", StateMerge::kSum, meters.finite, /*is_of_steps=*/true)};
  for (auto& [name, metric] : meters.metrics) {
    if (!metric.is_restorable()) {
      throw InvalidArgument("[fit] expected metrics with restore(), but '" + name +
                            "' has none: what it has summed up cannot be put back, as a fit needs that goes "
                            "on within an epoch or undoes steps");
    }
    all.push_back(meter_of("metric " + name, metric.merge(), metric));
  }
  return all;
}

/// Copies to `device`, always into new memory.
MetricState copy_on(const torch::Device& device, const MetricState& state) {
  MetricState copies;
  for (const auto& tensor : state) copies.push_back(tensor.to(device, tensor.scalar_type(), false, true));
  return copies;
}

/// Returns the tensors with which a replica's meter resumes after a change in the number of replicas; none if
/// it starts from 0.
MetricState state_for(int replica, const Meter& meter, const std::vector<MetricState>& of_replicas,
                      const MetricState& empty) {
  if (meter.is_of_steps) {
    // Takes the count of finite steps of the replica that broke first.
    return *std::min_element(of_replicas.begin(), of_replicas.end(), [](const auto& a, const auto& b) {
      return a[0].template item<double>() < b[0].template item<double>();
    });
  }
  if (replica != 0) return {};
  MetricState merged = merge_states(meter.merge, of_replicas);
  for (size_t i = 0; i < merged.size(); ++i) merged[i] = merged[i].to(empty[i].scalar_type());
  return merged;
}

}  // namespace

std::vector<MetricState> copy_meters(StepMeters& meters) {
  std::vector<MetricState> copies;
  for (const auto& meter : meters_of(meters)) {
    auto& copy = copies.emplace_back();
    for (const auto& tensor : meter.state()) copy.push_back(tensor.clone());
  }
  return copies;
}

void put_back_meters(StepMeters& meters, const std::vector<MetricState>& copies,
                     const torch::Device& device) {
  auto copy = copies.begin();
  for (const auto& meter : meters_of(meters)) meter.restore(copy_on(device, *copy++));
}

void check_restorable(StepMeters& meters) {
  meters_of(meters);
}

StateValue save_meters(Strategy& strategy, const std::vector<StepMeters*>& local) {
  std::vector<torch::Tensor> own;
  std::vector<std::pair<std::string, size_t>> names;  // names of the meters, with their number of tensors
  for (auto* meters : local) {
    names.clear();
    for (const auto& meter : meters_of(*meters)) {
      const MetricState state = meter.state();
      names.emplace_back(meter.name, state.size());
      for (const auto& tensor : state) own.push_back(tensor);
    }
  }
  const auto all = gather_of_replicas(strategy, own);
  const auto count = static_cast<size_t>(strategy.num_replicas_in_sync());
  const size_t size = all.size() / count;  // of one replica's tensors
  StateValue::Dict meters;
  size_t first = 0;
  for (const auto& [name, num_tensors] : names) {
    StateValue::List of_replicas;
    for (size_t replica = 0; replica < count; ++replica) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(replica * size + first);
      of_replicas.emplace_back(StateValue::List(begin, begin + static_cast<std::ptrdiff_t>(num_tensors)));
    }
    meters.add(name, std::move(of_replicas));
    first += num_tensors;
  }
  return meters;
}

void load_meters(Strategy& strategy, const StateView& saved, const std::vector<StepMeters*>& local) {
  for (size_t at = 0; at < local.size(); ++at) {
    const int replica = strategy.first_local_replica() + static_cast<int>(at);
    const torch::Device device = strategy.devices()[at].torch_device();
    local[at]->reset();
    for (const auto& meter : meters_of(*local[at])) {
      const MetricState empty = meter.state();
      std::vector<MetricState> of_replicas;
      const StateView replicas = saved.at(meter.name);
      for (const auto& of_replica : replicas.items()) {
        const auto tensors = of_replica.items();
        if (tensors.size() != empty.size())
          of_replica.fail(std::to_string(empty.size()) + " tensors", std::to_string(tensors.size()));
        auto& state = of_replicas.emplace_back();
        for (size_t i = 0; i < tensors.size(); ++i) {
          // The first dimension of a concatenated state grows with each addition.
          const bool is_sum = meter.merge == StateMerge::kSum;
          auto shape = empty[i].sizes().vec();
          const torch::Tensor& tensor = tensors[i].tensor();
          if (!is_sum && !shape.empty() && tensor.dim() > 0) shape[0] = tensor.size(0);
          state.push_back(tensors[i].tensor_like(empty[i].new_empty({0}).resize_(shape)));
        }
      }
      if (of_replicas.empty()) replicas.fail("the state of a replica at least", "none");
      const bool is_same_number = static_cast<int>(of_replicas.size()) == strategy.num_replicas_in_sync();
      MetricState state = is_same_number ? of_replicas[static_cast<size_t>(replica)]
                                         : state_for(replica, meter, of_replicas, empty);
      if (state.empty()) continue;
      for (auto& tensor : state) tensor = tensor.to(device).clone();
      meter.restore(std::move(state));
    }
  }
}

}  // namespace lockstep
