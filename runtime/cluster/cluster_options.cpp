#include "lockstep/runtime/cluster/cluster_options.h"

#include <climits>

namespace lockstep {

ClusterOptions cluster_options(const Environment& environment) {
  const LauncherVariables variables(environment, "cluster");
  ClusterOptions options;
  options.address = variables.find_text("LOCKSTEP_ADDRESS").value_or("");
  options.token = variables.find_text("LOCKSTEP_JOB_TOKEN").value_or("");
  options.listening_socket = variables.find_integer("LOCKSTEP_LISTEN_FD", {});
  if (const auto timeout =
          variables.find_integer("LOCKSTEP_JOIN_TIMEOUT", {.least = 1, .most = INT_MAX / 1000}))
    options.join_timeout = std::chrono::seconds(*timeout);
  if (const auto is_used = variables.find_integer("LOCKSTEP_SHARED_MEMORY", {.least = 0, .most = 1}))
    options.uses_shared_memory = *is_used == 1;
  return options;
}

}  // namespace lockstep
