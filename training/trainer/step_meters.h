#pragma once

#include <torch/types.h>

#include "lockstep/training/metrics/finite_steps.h"
#include "lockstep/training/metrics/metric_list.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/trainer/step_outputs.h"

namespace lockstep {

/// Sums up the steps of one epoch on one replica.
struct StepMeters {
  Mean loss;  ///< Mean over the examples.
  MetricList metrics;
  FiniteSteps finite;
  Mean gradient_norm;  ///< Mean over the steps, if the norm is computed.

  void update(const StepOutputs& step) {
    loss.update(step.losses);
    if (!step.outputs.defined()) return;
    for (auto& [name, metric] : metrics) metric.update(step.outputs, step.targets);
  }
  void reset() {
    loss.reset();
    for (auto& [name, metric] : metrics) metric.reset();
    finite.reset();
    gradient_norm.reset();
  }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    loss.for_each_tensor(visit);
    for (const auto& [name, metric] : metrics) metric.for_each_tensor(visit);
    finite.for_each_tensor(visit);
    gradient_norm.for_each_tensor(visit);
  }
};

}  // namespace lockstep
