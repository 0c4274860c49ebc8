#pragma once

#include <memory>
#include <string>

#include "lockstep/apps/shared/monitoring/metrics_choice.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"

namespace lockstep::apps {

/// Serves the metrics of this worker as the user asked, and logs the URL. Returns null if nothing was asked
/// for. `cluster` is null for a single process. Throws UsageError naming --metrics-port if the port cannot be
/// used, or if this build has no Prometheus.
std::shared_ptr<TrainingMetrics> serve_metrics(const std::string& program, const MetricsChoice& choice,
                                               const ClusterResolver* cluster);

}  // namespace lockstep::apps
