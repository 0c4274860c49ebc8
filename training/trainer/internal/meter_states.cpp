#include "lockstep/training/trainer/internal/meter_states.h"

#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/internal/metric_states.h"

namespace lockstep {
namespace {

MetricsOfReplica meters_of(StepMeters& meters) {
  MetricsOfReplica all{
      metric_access("loss", StateMerge::kSum, meters.loss),
      metric_access("gradient_norm", StateMerge::kSum, meters.gradient_norm, /*is_of_steps=*/true),
      metric_access("finite", StateMerge::kSum, meters.finite, /*is_of_steps=*/true)};
  for (auto& [name, metric] : meters.metrics) {
    if (!metric.is_restorable()) {
      throw InvalidArgument("[fit] expected metrics with restore(), but '" + name +
                            "' has none: a fit that resumes within an epoch or undoes steps must restore "
                            "its sums");
    }
    all.push_back(metric_access("metric " + name, metric.merge(), metric));
  }
  return all;
}

std::vector<MetricsOfReplica> meters_of(const std::vector<StepMeters*>& local) {
  std::vector<MetricsOfReplica> of_replicas;
  for (auto* meters : local) of_replicas.push_back(meters_of(*meters));
  return of_replicas;
}

/// Copies to `device`, always into new memory.
MetricState copy_on(const torch::Device& device, const MetricState& state) {
  MetricState copies;
  for (const auto& tensor : state) copies.push_back(tensor.to(device, tensor.scalar_type(), false, true));
  return copies;
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
  return save_metric_states(strategy, meters_of(local));
}

void load_meters(Strategy& strategy, const StateView& saved, const std::vector<StepMeters*>& local) {
  load_metric_states(strategy, saved, meters_of(local));
}

}  // namespace lockstep
