#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// Resolves the cluster of a process that Open MPI's mpirun started, from OMPI_COMM_WORLD_RANK,
/// OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK and OMPI_COMM_WORLD_LOCAL_SIZE. Every process is a worker
/// whose task_id is its rank. The cluster spec is empty.
///
/// Example:
///
///     OpenMPIClusterResolver resolver(process_environment());
///     std::cout << resolver.rank() << " of " << resolver.world_size() << '\n';
///
/// Open MPI gives no address. On several machines, pass one with `mpirun -x MASTER_ADDR -x MASTER_PORT`. On
/// one machine you need not: rendezvous_file() is then in mpirun's session folder, PMIX_SERVER_TMPDIR, which
/// only its user can enter and which mpirun removes at the end. The file's name contains the job's name,
/// PMIX_NAMESPACE.
class OpenMPIClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value, or saying how to pass it if it is missing.
  explicit OpenMPIClusterResolver(const Environment& environment);

  /// Whether mpirun started this process, even if its variables are malformed.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
