#include "lockstep/runtime/cluster/tf_config_cluster_resolver.h"

#include "lockstep/runtime/cluster/tf_config.h"

namespace lockstep {
namespace {

constexpr char kTfConfigVariable[] = "TF_CONFIG";

ClusterMembership read_tf_config(const Environment& environment, const std::string& source) {
  const LauncherVariables variables(environment, kTfConfigVariable);
  const TfConfig config = parse_tf_config(variables.text(kTfConfigVariable));
  ClusterMembership membership = make_membership(source, config.cluster, config.task_type, config.task_id);
  membership.restart_count = variables.find_integer("LOCKSTEP_RESTART_COUNT", {}).value_or(0);
  membership.job_id = variables.find_text("LOCKSTEP_JOB_ID").value_or("");
  return membership;
}

}  // namespace

TFConfigClusterResolver::TFConfigClusterResolver(const Environment& environment, const std::string& source)
    : FixedClusterResolver(read_tf_config(environment, source)) {}

bool TFConfigClusterResolver::detects(const Environment& environment) {
  return environment(kTfConfigVariable).has_value();
}

}  // namespace lockstep
