#include "lockstep/apps/train_images/training/decided_values.h"

#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep::apps {

void decide_values(CommandLine& line, const DataLocation& location, const Strategy& strategy) {
  TrainOptions& options = line.options;
  if (options.data == "auto") {
    options.data = location.kind == DataKind::kGenerated ? "generated" : location.path;
    if (!location.variable.empty())
      line.origins["data"] = {.kind = OriginKind::kEnvironment, .name = location.variable};
  }
  const ClusterResolver* cluster = strategy.cluster_resolver();
  if (options.strategy == "auto" && cluster != nullptr) {
    options.strategy = "multi_worker";
    if (options.worker_hosts.empty())
      line.origins["strategy"] = {.kind = OriginKind::kEnvironment, .name = cluster->source()};
  }
}

}  // namespace lockstep::apps
