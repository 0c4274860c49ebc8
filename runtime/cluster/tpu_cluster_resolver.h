#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Resolves the cluster of a process on a slice of TPUs, from the variables of Cloud TPU VMs, of Google
/// Kubernetes Engine and of torch_tpu. Every process is a worker whose task_id is its rank, and uses one
/// device; the processes of a host have consecutive ranks. The cluster spec is empty, since the variables
/// name ports of libtpu only. docs/cluster.md lists the variables, their meanings and the sources of these.
///
/// Example:
///
///     TPUClusterResolver resolver(process_environment());
///     std::cout << resolver.rank() << " of " << resolver.world_size() << '\n';
///
/// RANK and WORLD_SIZE, as a launcher sets them, tell the rank. Without them, CLOUD_TPU_TASK_ID is the rank
/// if TPU_PROCESS_ADDRESSES or TORCH_TPU_SLICEBUILDER_ADDRESSES lists the processes. Else the rank follows
/// from the host's index among TPU_WORKER_HOSTNAMES, which is TPU_WORKER_ID or JOB_COMPLETION_INDEX, and from
/// LOCAL_RANK. Without LOCAL_WORLD_SIZE and TORCH_TPU_DEVICES_PER_HOST, a host then has one process.
///
/// As in torch_tpu, the store is at MASTER_ADDR, or else on the first host, and at MASTER_PORT, or else at
/// port 29500; a variable with an empty value counts as not set. It asks no metadata server.
class TPUClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value: if it is malformed, if it contradicts another
  /// one, if two processes would use one chip, and for a job of several slices.
  explicit TPUClusterResolver(const Environment& environment);

  /// Whether a variable lists several hosts or processes of a slice of TPUs, even if it is malformed. A TPU
  /// VM that is a slice by itself names only itself in TPU_WORKER_HOSTNAMES.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
