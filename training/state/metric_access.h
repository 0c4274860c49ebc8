#pragma once

#include <functional>
#include <string>
#include <utility>

#include "lockstep/training/metrics/metric.h"

namespace lockstep {

/// Reads and restores one replica's metric, without its type. The metric must outlive it.
struct MetricAccess {
  std::string name;
  StateMerge merge = StateMerge::kSum;
  std::function<MetricState()> state;
  std::function<void(MetricState)> restore;
  std::function<void()> reset;
  /// Counts steps, which are the same on all replicas, rather than examples, which differ.
  bool is_of_steps = false;
};

/// Returns access to a metric.
template <typename M>
MetricAccess metric_access(const std::string& name, StateMerge merge, M& metric, bool is_of_steps = false) {
  return {name,
          merge,
          [&metric] { return metric.state(); },
          [&metric](MetricState state) { metric.restore(std::move(state)); },
          [&metric] { metric.reset(); },
          is_of_steps};
}

}  // namespace lockstep
