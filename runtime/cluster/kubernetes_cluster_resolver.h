#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Resolves the cluster of a pod of a Kubeflow job that runs one process, without torchrun. TFJob sets
/// TF_CONFIG. PyTorchJob sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; newer versions also set
/// PET_MASTER_ADDR, PET_MASTER_PORT, PET_NODE_RANK and PET_NNODES, which take precedence. Every pod of a
/// PyTorchJob is a worker whose task_id is its rank, and the pod called Master is rank 0. Its cluster spec is
/// empty.
///
/// Example:
///
///     if (KubernetesClusterResolver::detects(process_environment())) {
///       KubernetesClusterResolver resolver(process_environment());
///       std::cout << resolver.source() << '\n';
///     }
///
/// PET_NPROC_PER_NODE is meant for torchrun and ignored: a process here trains on all devices of its pod. An
/// elastic job, whose number of pods changes, needs torchrun.
class KubernetesClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value.
  explicit KubernetesClusterResolver(const Environment& environment);

  /// Whether KUBERNETES_SERVICE_HOST and any of PyTorchJob's variables are set. TFConfigClusterResolver
  /// detects a TFJob.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
