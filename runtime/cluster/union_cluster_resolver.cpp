#include "lockstep/runtime/cluster/union_cluster_resolver.h"

#include <algorithm>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ClusterResolvers = std::vector<std::shared_ptr<const ClusterResolver>>;

ClusterSpec merge_specs(const ClusterResolvers& resolvers) {
  ClusterSpec::Jobs merged;
  for (const auto& resolver : resolvers) {
    const ClusterSpec spec = resolver->cluster_spec();
    for (const auto& [job, tasks] : spec.jobs()) {
      for (const auto& [index, address] : tasks) {
        const HostPort& present = merged[job].emplace(index, address).first->second;
        if (present == address) continue;
        throw InvalidArgument("[UnionClusterResolver] expected one address for " + job + " " +
                              std::to_string(index) + ", but got " + present.str() + " and, from " +
                              resolver->source() + ", " + address.str());
      }
    }
  }
  return ClusterSpec(std::move(merged));
}

ClusterMembership merge(const ClusterResolvers& resolvers) {
  if (resolvers.empty() || std::find(resolvers.begin(), resolvers.end(), nullptr) != resolvers.end()) {
    throw InvalidArgument("[UnionClusterResolver] expected at least one resolver and no null, but got " +
                          std::string(resolvers.empty() ? "none" : "a null"));
  }
  const ClusterResolver& first = *resolvers.front();
  const ClusterSpec spec = merge_specs(resolvers);
  std::string source = "union of " + first.source();
  for (size_t i = 1; i < resolvers.size(); ++i) source += ", " + resolvers[i]->source();

  const bool trains = first.task_type() == "chief" || first.task_type() == "worker";
  const bool counts = spec.num_training_tasks() > 0;
  ClusterMembership membership{.source = source, .cluster_spec = spec};
  membership.task_type = first.task_type();
  membership.task_id = first.task_id();
  membership.rank = std::nullopt;
  if (trains)
    membership.rank = counts ? spec.training_rank(first.task_type(), first.task_id()) : first.rank();
  membership.world_size = counts ? spec.num_training_tasks() : first.world_size();
  membership.master = first.master();
  membership.is_master_served_by_launcher = first.is_master_served_by_launcher();
  membership.local_rank = first.local_rank();
  membership.local_world_size = first.local_world_size();
  membership.restart_count = first.restart_count();
  membership.job_id = first.job_id();
  membership.rendezvous_file = first.rendezvous_file();
  return membership;
}

}  // namespace

UnionClusterResolver::UnionClusterResolver(const ClusterResolvers& resolvers)
    : FixedClusterResolver(merge(resolvers)) {}

}  // namespace lockstep
