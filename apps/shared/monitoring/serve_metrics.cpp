#include "lockstep/apps/shared/monitoring/serve_metrics.h"

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep::apps {

std::shared_ptr<TrainingMetrics> serve_metrics(const std::string& program, const MetricsChoice& choice,
                                               const ClusterResolver* cluster) {
  if (choice.metrics_port < 0) return nullptr;
  TrainingMetricsOptions options{.port = static_cast<int>(choice.metrics_port),
                                 .address = choice.metrics_address};
  if (cluster != nullptr) {
    options.rank = cluster->rank();
    if (options.port != 0) options.port += cluster->local_rank();
  }
  try {
    auto metrics = std::make_shared<TrainingMetrics>(options);
    log_line(program, "metrics at " + metrics->url());
    return metrics;
  } catch (const InvalidArgument& error) {
    throw UsageError("--metrics-port " + std::to_string(choice.metrics_port) + ": " + error.what());
  }
}

}  // namespace lockstep::apps
