#pragma once

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

/// A process that Open MPI's mpirun started, by OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE,
/// OMPI_COMM_WORLD_LOCAL_RANK and OMPI_COMM_WORLD_LOCAL_SIZE. Every process is a worker whose task_id is its
/// rank. The cluster spec is empty.
///
/// Open MPI names no address. Over several machines, `mpirun -x MASTER_ADDR -x MASTER_PORT` must. With all
/// processes on one machine it need not: rendezvous_file() is then in the session folder of mpirun,
/// PMIX_SERVER_TMPDIR, which only its user can enter and which mpirun removes at the end; the name of the
/// file holds the job's, PMIX_NAMESPACE.
class OpenMPIClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument naming the variable and its value or, where it is missing, how to pass it.
  explicit OpenMPIClusterResolver(const Environment& environment);

  /// Whether mpirun started this process, be its variables well formed or not.
  static bool detects(const Environment& environment);
};

}  // namespace lockstep
