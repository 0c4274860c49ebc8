#include "lockstep/training/metrics/metric_list.h"

namespace lockstep {

std::vector<std::pair<std::string, torch::Tensor>> metric_results(
    const std::vector<const MetricList*>& lists, const PerReplica<MetricState>::Devices& devices,
    Strategy* strategy) {
  std::vector<std::pair<std::string, torch::Tensor>> values;
  const int first_replica = strategy == nullptr ? 0 : strategy->first_local_replica();
  for (size_t i = 0; i < lists.front()->size(); ++i) {
    const auto& name = (*lists.front())[i].name;
    const auto& metric = (*lists.front())[i].metric;
    std::vector<MetricState> states;
    for (size_t replica = 0; replica < lists.size(); ++replica) {
      with_device_errors("result", first_replica + static_cast<int>(replica), (*devices)[replica], [&] {
        states.push_back(merge_states(metric.merge(), {(*lists[replica])[i].metric.state()}));
      });
    }
    const auto merged = strategy == nullptr
                            ? merge_states(metric.merge(), states)
                            : merge_states(*strategy, metric.merge(), PerReplica(states, devices));
    values.emplace_back(name, metric.value(merged));
  }
  return values;
}

}  // namespace lockstep
