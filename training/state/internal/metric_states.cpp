#include "lockstep/training/state/internal/metric_states.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "lockstep/training/state/internal/replica_states.h"

namespace lockstep {
namespace {

/// Returns the tensors with which a replica's metric resumes after a change in the number of replicas; none
/// if it starts from 0.
MetricState state_for(int replica, const MetricAccess& metric, const std::vector<MetricState>& of_replicas,
                      const MetricState& empty) {
  if (metric.is_of_steps) {
    // Takes the count of finite steps of the replica that broke first.
    return *std::min_element(of_replicas.begin(), of_replicas.end(), [](const auto& a, const auto& b) {
      return a[0].template item<double>() < b[0].template item<double>();
    });
  }
  if (replica != 0) return {};
  MetricState merged = merge_states(metric.merge, of_replicas);
  for (size_t i = 0; i < merged.size(); ++i) merged[i] = merged[i].to(empty[i].scalar_type());
  return merged;
}

}  // namespace

StateValue save_metric_states(Strategy& strategy, const std::vector<MetricsOfReplica>& local) {
  std::vector<torch::Tensor> own;
  std::vector<std::pair<std::string, size_t>> names;  // names of the metrics, with their number of tensors
  for (size_t at = 0; at < local.size(); ++at) {
    const auto& metrics = local[at];
    names.clear();
    for (const auto& metric : metrics) {
      const MetricState state = metric.state();
      names.emplace_back(metric.name, state.size());
      if (strategy.is_first_of_replica(at)) own.insert(own.end(), state.begin(), state.end());
    }
  }
  const auto all = gather_of_replicas(strategy, own);
  const auto count = static_cast<size_t>(strategy.num_replicas_in_sync());
  const size_t size = all.size() / count;  // of one replica's tensors
  StateValue::Dict metrics;
  size_t first = 0;
  for (const auto& [name, num_tensors] : names) {
    StateValue::List of_replicas;
    for (size_t replica = 0; replica < count; ++replica) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(replica * size + first);
      of_replicas.emplace_back(StateValue::List(begin, begin + static_cast<std::ptrdiff_t>(num_tensors)));
    }
    metrics.add(name, std::move(of_replicas));
    first += num_tensors;
  }
  return metrics;
}

void load_metric_states(Strategy& strategy, const StateView& saved,
                        const std::vector<MetricsOfReplica>& local) {
  for (size_t at = 0; at < local.size(); ++at) {
    const int replica = strategy.replica_of(at);
    const torch::Device device = strategy.devices()[at].torch_device();
    for (const auto& metric : local[at]) {
      metric.reset();
      const MetricState empty = metric.state();
      std::vector<MetricState> of_replicas;
      const StateView replicas = saved.at(metric.name);
      for (const auto& of_replica : replicas.items()) {
        const auto tensors = of_replica.items();
        if (tensors.size() != empty.size())
          of_replica.fail(std::to_string(empty.size()) + " tensors", std::to_string(tensors.size()));
        auto& state = of_replicas.emplace_back();
        for (size_t i = 0; i < tensors.size(); ++i) {
          // The first dimension of a concatenated state grows with each addition.
          const bool is_sum = metric.merge == StateMerge::kSum;
          auto shape = empty[i].sizes().vec();
          const torch::Tensor& tensor = tensors[i].tensor();
          if (!is_sum && !shape.empty() && tensor.dim() > 0) shape[0] = tensor.size(0);
          state.push_back(tensors[i].tensor_like(empty[i].new_empty({0}).resize_(shape)));
        }
      }
      if (of_replicas.empty()) replicas.fail("the state of a replica at least", "none");
      const bool is_same_number = static_cast<int>(of_replicas.size()) == strategy.num_replicas_in_sync();
      MetricState state = is_same_number ? of_replicas[static_cast<size_t>(replica)]
                                         : state_for(replica, metric, of_replicas, empty);
      if (state.empty()) continue;
      for (auto& tensor : state) tensor = tensor.to(device).clone();
      metric.restore(std::move(state));
    }
  }
}

}  // namespace lockstep
