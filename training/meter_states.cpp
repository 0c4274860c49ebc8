#include "lockstep/training/meter_states.h"

#include <functional>
#include <string>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/strategy.h"

namespace lockstep {
namespace {

/// One of the things that a replica's steps are summed up by.
struct Meter {
  std::string name;
  StateMerge merge;
  std::function<MetricState()> state;
  std::function<void(MetricState)> restore;
};

template <typename M>
Meter meter_of(const std::string& name, StateMerge merge, M& metric) {
  return {name, merge, [&metric] { return metric.state(); },
          [&metric](MetricState state) { metric.restore(std::move(state)); }};
}

std::vector<Meter> meters_of(StepMeters& meters) {
  std::vector<Meter> all{meter_of("loss", StateMerge::kSum, meters.loss),
                         meter_of("gradient_norm", StateMerge::kSum, meters.gradient_norm),
                         meter_of("finite", StateMerge::kSum, meters.finite)};
  for (auto& [name, metric] : meters.metrics) {
    if (!metric.is_restorable()) {
      throw InvalidArgument("[resume_state] expected metrics with restore(), but '" + name +
                            "' has none: it cannot go on within an epoch");
    }
    all.push_back(meter_of("metric " + name, metric.merge(), metric));
  }
  return all;
}

/// The tensors that a replica's meter goes on from, of those of all replicas.
MetricState state_for(int replica, bool is_same_number, StateMerge merge,
                      const std::vector<MetricState>& of_replicas, const MetricState& empty) {
  if (is_same_number) return of_replicas[static_cast<size_t>(replica)];
  if (replica != 0) return {};
  MetricState merged = merge_states(merge, of_replicas);
  for (size_t i = 0; i < merged.size(); ++i) merged[i] = merged[i].to(empty[i].scalar_type());
  return merged;
}

}  // namespace

StateValue save_meters(Strategy& strategy, const std::vector<StepMeters*>& local) {
  std::vector<torch::Tensor> own;
  std::vector<std::pair<std::string, size_t>> names;  // of the meters, with the number of their tensors
  for (auto* meters : local) {
    names.clear();
    for (const auto& meter : meters_of(*meters)) {
      const MetricState state = meter.state();
      names.emplace_back(meter.name, state.size());
      for (const auto& tensor : state) own.push_back(tensor);
    }
  }
  std::vector<torch::Tensor> all;
  for (auto& of_worker : strategy.extended().gather_tensors(own))
    for (auto& tensor : of_worker) all.push_back(tensor.clone());
  const auto count = static_cast<size_t>(strategy.num_replicas_in_sync());
  const size_t size = all.size() / count;  // of a replica's
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
          // Of what is concatenated the first dimension is what was added so far.
          const bool is_sum = meter.merge == StateMerge::kSum;
          auto shape = empty[i].sizes().vec();
          const torch::Tensor& tensor = tensors[i].tensor();
          if (!is_sum && !shape.empty() && tensor.dim() > 0) shape[0] = tensor.size(0);
          state.push_back(tensors[i].tensor_like(empty[i].new_empty({0}).resize_(shape)));
        }
      }
      if (of_replicas.empty()) replicas.fail("the state of a replica at least", "none");
      const bool is_same_number = static_cast<int>(of_replicas.size()) == strategy.num_replicas_in_sync();
      MetricState state = state_for(replica, is_same_number, meter.merge, of_replicas, empty);
      if (state.empty()) continue;
      for (auto& tensor : state) tensor = tensor.to(device).clone();
      meter.restore(std::move(state));
    }
  }
}

}  // namespace lockstep
