#include "lockstep/runtime/cluster/kubernetes_cluster_resolver.h"

#include <algorithm>
#include <array>
#include <string>

#include "lockstep/runtime/cluster/tf_config_cluster_resolver.h"

namespace lockstep {
namespace {

constexpr char kKubernetes[] = "Kubernetes";

/// Whichever of PyTorchJob's two variables for the same value is set, preferring the newer one.
std::string either_of(const LauncherVariables& variables, const std::string& name, const std::string& newer) {
  return variables.has(newer) ? newer : name;
}

ClusterMembership read_pytorch_job(const Environment& environment) {
  const LauncherVariables variables(environment, kKubernetes);
  if (variables.has("PET_RDZV_ENDPOINT") && !variables.has("RANK") && !variables.has("PET_NODE_RANK")) {
    variables.refuse("PET_RDZV_ENDPOINT", "absent: an elastic PyTorchJob must be started by torchrun");
  }
  ClusterMembership membership;
  const std::string size_name = either_of(variables, "WORLD_SIZE", "PET_NNODES");
  const std::string rank_name = either_of(variables, "RANK", "PET_NODE_RANK");
  membership.world_size = variables.integer(size_name, {.least = 1});
  const int rank = variables.integer(rank_name, {.most = membership.world_size - 1});
  membership.rank = rank;
  membership.task_id = rank;
  const std::string prefix = variables.has("PET_MASTER_ADDR") ? "PET_" : "";
  membership.master = membership.world_size > 1 ? variables.master(prefix) : variables.find_master(prefix);
  membership.source = "Kubernetes (PyTorchJob, " + rank_name + "=" + std::to_string(rank) + " of " +
                      size_name + "=" + std::to_string(membership.world_size) + ")";
  return membership;
}

bool is_pytorch_job(const Environment& environment) {
  constexpr std::array<const char*, 5> kVariables = {"RANK", "WORLD_SIZE", "PET_NNODES", "PET_NODE_RANK",
                                                     "PET_RDZV_ENDPOINT"};
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [&](const char* name) { return environment(name).has_value(); });
}

ClusterMembership read_kubernetes(const Environment& environment) {
  const bool is_tf_job = TFConfigClusterResolver::detects(environment) && !is_pytorch_job(environment);
  if (is_tf_job) return TFConfigClusterResolver(environment, "Kubernetes (TFJob, TF_CONFIG)").membership();
  return read_pytorch_job(environment);
}

}  // namespace

KubernetesClusterResolver::KubernetesClusterResolver(const Environment& environment)
    : FixedClusterResolver(read_kubernetes(environment)) {}

bool KubernetesClusterResolver::detects(const Environment& environment) {
  return environment("KUBERNETES_SERVICE_HOST") && is_pytorch_job(environment);
}

}  // namespace lockstep
