#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// A pod of a Kubeflow job that runs one process, without torchrun. TFJob sets TF_CONFIG. PyTorchJob sets
/// MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; newer ones PET_MASTER_ADDR, PET_MASTER_PORT, PET_NODE_RANK
/// and PET_NNODES too, which hold where both are set. Every pod of a PyTorchJob is a worker whose task_id is
/// its rank, the pod called Master being rank 0. Its cluster spec is empty.
///
/// PET_NPROC_PER_NODE is for torchrun, and ignored: a process here trains on all devices of its pod. An
/// elastic job, whose number of pods changes, needs torchrun.
class KubernetesClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value.
  explicit KubernetesClusterResolver(const Environment& environment);

  /// Whether this is a pod, by KUBERNETES_SERVICE_HOST, with any of PyTorchJob's variables. That of TFJob is
  /// for TFConfigClusterResolver to detect.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
