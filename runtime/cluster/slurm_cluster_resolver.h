#pragma once

#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

struct SlurmClusterOptions {
  /// Port of a node's first task; the next tasks use the ports above it.
  int port_base = 8888;
};

/// Resolves the cluster of a task that Slurm's srun started. It reads the step's variables, or the job's if
/// srun set none. Every task is a worker whose task_id is its rank, SLURM_PROCID. The cluster spec follows
/// from the node list and the tasks of each node, laid out as SLURM_DISTRIBUTION says (block, cyclic or
/// plane). MASTER_ADDR and MASTER_PORT each replace the first task's host or port in master(), but not in the
/// cluster spec.
///
/// Example:
///
///     SlurmClusterResolver resolver(process_environment(), {.port_base = 9000});
///     std::cout << resolver.rank() << " of " << resolver.world_size() << '\n';
class SlurmClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variables that are missing, malformed or contradictory.
  explicit SlurmClusterResolver(const Environment& environment, const SlurmClusterOptions& options = {});

  /// Whether srun started this process, even if its variables are malformed. Returns false in the shells of
  /// sbatch and salloc, which may have SLURM_PROCID but no step of srun. Returns false for processes of an
  /// mpirun whose daemons srun started, because their SLURM_PROCID and SLURM_NTASKS are not their own. A
  /// terminal with one task (srun --pty) counts as a shell.
  static bool detects(const Environment& environment);

  /// Returns the variables that are missing from the environment of one of several tasks of Slurm, in which
  /// detects() is false because SLURM_STEP_ID is not set: a script of sbatch that starts the program without
  /// srun, or a container that does not get all variables. Empty in every other environment.
  static std::vector<std::string> missing_variables(const Environment& environment);
};

}  // namespace lockstep
