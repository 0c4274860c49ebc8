#include "lockstep/runtime/cluster/open_mpi_cluster_resolver.h"

#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr char kMpiRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kMpiSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kMpiLocalRank[] = "OMPI_COMM_WORLD_LOCAL_RANK";
constexpr char kMpiLocalSize[] = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr char kSessionFolder[] = "PMIX_SERVER_TMPDIR";
constexpr char kPmixJob[] = "PMIX_NAMESPACE";

/// Says what to do if nothing names an address.
[[noreturn]] void refuse_without_master(const std::string& why) {
  throw InvalidArgument(
      "[Open MPI] expected MASTER_ADDR and MASTER_PORT to name where rank 0 listens, for " + why +
      ", but they are not set: pass them with mpirun -x MASTER_ADDR=... -x MASTER_PORT=...");
}

std::string rendezvous_file_of(const LauncherVariables& variables) {
  for (const char* name : {kSessionFolder, kPmixJob}) {
    if (!variables.has(name)) refuse_without_master(name + std::string(" is not set either"));
  }
  const std::string folder = variables.text(kSessionFolder);
  if (!folder.starts_with('/')) variables.refuse(kSessionFolder, "an absolute path");
  const std::string job = variables.text(kPmixJob);
  if (job.empty() || job.find('/') != std::string::npos) variables.refuse(kPmixJob, "a name without '/'");
  return folder + "/lockstep." + job;
}

ClusterMembership read_open_mpi(const Environment& environment) {
  const LauncherVariables variables(environment, "Open MPI");
  ClusterMembership membership;
  membership.world_size = variables.integer(kMpiSize, {.least = 1});
  const int rank = variables.integer(kMpiRank, {.most = membership.world_size - 1});
  membership.rank = rank;
  membership.task_id = rank;
  membership.local_world_size = variables.integer(kMpiLocalSize, {.least = 1, .most = membership.world_size});
  membership.local_rank = variables.integer(kMpiLocalRank, {.most = membership.local_world_size - 1});
  membership.job_id = variables.find_text(kPmixJob).value_or("");
  membership.source = std::string("Open MPI (") + kMpiRank + "=" + std::to_string(rank) + " of " + kMpiSize +
                      "=" + std::to_string(membership.world_size) + ")";

  membership.master = variables.find_master();
  if (membership.master || membership.world_size == 1) return membership;
  if (membership.local_world_size < membership.world_size) {
    refuse_without_master("the job has several machines (" + std::string(kMpiLocalSize) + "=" +
                          std::to_string(membership.local_world_size) + " of " + kMpiSize + "=" +
                          std::to_string(membership.world_size) + ")");
  }
  membership.rendezvous_file = rendezvous_file_of(variables);
  return membership;
}

}  // namespace

OpenMPIClusterResolver::OpenMPIClusterResolver(const Environment& environment)
    : FixedClusterResolver(read_open_mpi(environment)) {}

bool OpenMPIClusterResolver::detects(const Environment& environment) {
  return environment(kMpiRank) || environment(kMpiSize);
}

}  // namespace lockstep
