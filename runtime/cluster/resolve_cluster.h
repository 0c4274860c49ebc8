#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Flags of a program that describe the cluster.
struct ClusterFlags {
  std::vector<std::string> worker_hosts;  ///< --worker-hosts: host:port of every worker.
  std::optional<int> task_index;          ///< --task-index: index of this process among them.
};

/// Finds the cluster to which this process belongs. The first source that is present decides: the flags,
/// TF_CONFIG, torchrun's variables, those of a PyTorchJob in Kubernetes, Slurm's, Open MPI's, those of TPUs.
/// A TF_CONFIG with an empty cluster is skipped unless its task is an evaluator. Returns null if no source
/// names a cluster; source() tells which one decided.
///
/// Throws InvalidArgument naming the variable, JSON path or flag if a source is present but malformed; it is
/// never skipped. Does not block and does not resolve names.
std::unique_ptr<ClusterResolver> resolve_cluster(const Environment& environment,
                                                 const ClusterFlags& flags = {});

}  // namespace lockstep
