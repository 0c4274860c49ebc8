#include "lockstep/runtime/cluster/torchrun_cluster_resolver.h"

#include <string>

namespace lockstep {
namespace {

constexpr char kRunId[] = "TORCHELASTIC_RUN_ID";
constexpr char kUseAgentStore[] = "TORCHELASTIC_USE_AGENT_STORE";

bool uses_agent_store(const LauncherVariables& variables) {
  const std::string text = variables.find_text(kUseAgentStore).value_or("False");
  if (text != "True" && text != "False") variables.refuse(kUseAgentStore, "True or False");
  return text == "True";
}

ClusterMembership read_torchrun(const Environment& environment) {
  const LauncherVariables variables(environment, "torchrun");
  ClusterMembership membership;
  membership.world_size = variables.integer("WORLD_SIZE", {.least = 1});
  const int rank = variables.integer("RANK", {.most = membership.world_size - 1});
  membership.rank = rank;
  membership.task_id = rank;
  if (variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE")) {
    membership.local_world_size =
        variables.integer("LOCAL_WORLD_SIZE", {.least = 1, .most = membership.world_size});
    membership.local_rank = variables.integer("LOCAL_RANK", {.most = membership.local_world_size - 1});
  }
  membership.master = membership.world_size > 1 ? variables.master() : variables.find_master();
  membership.is_master_served_by_launcher = uses_agent_store(variables);
  if (membership.is_master_served_by_launcher) membership.master = variables.master();
  membership.restart_count = variables.find_integer("TORCHELASTIC_RESTART_COUNT", {}).value_or(0);
  membership.job_id = variables.find_text(kRunId).value_or("");
  // torchrun's value if no --rdzv-id was given.
  if (membership.job_id == "none") membership.job_id.clear();
  membership.source = "torchrun (RANK=" + std::to_string(rank) +
                      " of WORLD_SIZE=" + std::to_string(membership.world_size) + ")";
  return membership;
}

}  // namespace

TorchrunClusterResolver::TorchrunClusterResolver(const Environment& environment)
    : FixedClusterResolver(read_torchrun(environment)) {}

bool TorchrunClusterResolver::detects(const Environment& environment) {
  if (environment(kRunId)) return true;
  if (!environment("RANK") && !environment("WORLD_SIZE")) return false;
  return environment("LOCAL_RANK") || !environment("KUBERNETES_SERVICE_HOST");
}

}  // namespace lockstep
