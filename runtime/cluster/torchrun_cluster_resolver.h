#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Resolves the cluster of a process that torchrun started, or any other launcher that sets RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. It also reads torchrun's own
/// TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_USE_AGENT_STORE. Every process is a
/// worker whose task_id is its rank; there is no chief. The cluster spec is empty, since torchrun names only
/// the master.
///
/// Example:
///
///     TorchrunClusterResolver resolver(process_environment());
///     std::cout << resolver.rank() << " of " << resolver.world_size() << '\n';
class TorchrunClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value. Both local variables may be absent, which
  /// means one process on its machine. The master's variables may be absent if WORLD_SIZE is 1.
  explicit TorchrunClusterResolver(const Environment& environment);

  /// Whether these variables are set, even if they are malformed. In Kubernetes, RANK and WORLD_SIZE without
  /// LOCAL_RANK belong to PyTorchJob.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
