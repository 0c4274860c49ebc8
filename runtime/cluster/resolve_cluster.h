#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// What a program's flags say of the cluster.
struct ClusterFlags {
  std::vector<std::string> worker_hosts;  ///< --worker-hosts: host:port of every worker
  std::optional<int> task_index;          ///< --task-index: which of them this process is
};

/// Finds out which cluster this process belongs to. The first of these that is there decides: the flags,
/// TF_CONFIG, torchrun's variables, those of a PyTorchJob in Kubernetes, Slurm's, Open MPI's. Null where none
/// names a cluster; a TF_CONFIG with an empty one is passed over unless its task is an evaluator. What
/// source() answers tells which won.
///
/// A source that is there but malformed is never skipped: throws InvalidArgument, naming the variable, JSON
/// path or flag. Does not block and resolves no name.
std::unique_ptr<ClusterResolver> resolve_cluster(const Environment& environment,
                                                 const ClusterFlags& flags = {});

}  // namespace lockstep
