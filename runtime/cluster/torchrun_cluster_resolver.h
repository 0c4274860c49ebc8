#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// A process that torchrun started, or anything else that sets its variables: RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and torchrun's own TORCHELASTIC_RUN_ID,
/// TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_USE_AGENT_STORE. Every process is a worker whose task_id is
/// its rank; there is no chief. The cluster spec is empty: torchrun names the master only.
class TorchrunClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value. The local pair may be absent, for a process
  /// alone on its machine; so may the master's for a world of one.
  explicit TorchrunClusterResolver(const Environment& environment);

  /// Whether these variables are there, be they well formed or not. Within Kubernetes, RANK and WORLD_SIZE
  /// without a LOCAL_RANK are PyTorchJob's.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
