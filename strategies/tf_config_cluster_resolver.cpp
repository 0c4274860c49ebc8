#include "lockstep/strategies/tf_config_cluster_resolver.h"

#include "lockstep/strategies/tf_config.h"

namespace lockstep {
namespace {

constexpr char kTfConfigVariable[] = "TF_CONFIG";

ClusterMembership read_tf_config(const Environment& environment, const std::string& source) {
  const TfConfig config =
      parse_tf_config(LauncherVariables(environment, kTfConfigVariable).text(kTfConfigVariable));
  return make_membership(source, config.cluster, config.task_type, config.task_id);
}

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(const Environment& environment, const std::string& source)
    : FixedClusterResolver(read_tf_config(environment, source)) {}

bool TFConfigClusterResolver::detects(const Environment& environment) {
  return environment(kTfConfigVariable).has_value();
}

}  // namespace lockstep
