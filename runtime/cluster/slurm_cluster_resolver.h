#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

struct SlurmClusterOptions {
  int port_base = 8888;  ///< the first task of a node listens there, the next ones above it
};

/// A task that Slurm's srun started. The step's variables are read, or the job's where srun set none of its
/// own. Every task is a worker whose task_id is its rank, SLURM_PROCID; the cluster spec follows from the
/// node list and the tasks of each node, laid out as SLURM_DISTRIBUTION says, block or cyclic. MASTER_ADDR
/// and MASTER_PORT, each for itself, replace the first task's host and port as master; the cluster spec keeps
/// them.
class SlurmClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variables that are missing, malformed, or contradict each other.
  explicit SlurmClusterResolver(const Environment& environment, const SlurmClusterOptions& options = {});

  /// Whether srun started this process, be its variables well formed or not. It did not start the shell of
  /// sbatch and salloc (SLURM_PROCID may be set there, but no step of srun's), nor a process of an mpirun
  /// whose daemons it started: their SLURM_PROCID and SLURM_NTASKS are not the process's own. A terminal with
  /// one task (srun --pty) counts as a shell.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
