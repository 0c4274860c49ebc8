#include "lockstep/runtime/cluster/open_mpi_cluster_resolver.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

/// Variables as mpirun of Open MPI 4.1.4 sets them for the second of two processes on one machine.
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"OMPI_UNIVERSE_SIZE", "2"},
    {"PMIX_NAMESPACE", "800325633"},     {"PMIX_RANK", "1"},
    {"PMIX_ID", "800325633.1"},          {"PMIX_SERVER_TMPDIR", "/tmp/ompi.node0.0/pid.17226"},
    {"PMIX_SYSTEM_TMPDIR", "/tmp"}};

/// Two machines with one process each.
const Variables kTwoMachines =
    changed(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});

std::string open_mpi_refusal(const Variables& variables) {
  return message_of<InvalidArgument>([&] { OpenMPIClusterResolver resolver(environment_of(variables)); });
}

TEST(OpenMPIClusterResolver, MeetsInTheSessionFolderOfOneMachine) {
  const OpenMPIClusterResolver resolver(environment_of(kOpenMpi));
  EXPECT_EQ(resolver.source(), "Open MPI (OMPI_COMM_WORLD_RANK=1 of OMPI_COMM_WORLD_SIZE=2)");
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.world_size(), 2);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.local_world_size(), 2);
  EXPECT_EQ(resolver.job_id(), "800325633");
  EXPECT_EQ(resolver.rendezvous_file(), "/tmp/ompi.node0.0/pid.17226/lockstep.800325633");
  EXPECT_FALSE(resolver.master());
  EXPECT_TRUE(resolver.cluster_spec().empty());
}

TEST(OpenMPIClusterResolver, TakesAMasterThatMpirunPassesOn) {
  for (const Variables& variables : {kOpenMpi, kTwoMachines}) {
    const OpenMPIClusterResolver resolver(
        environment_of(changed(variables, {{"MASTER_ADDR", "Node0"}, {"MASTER_PORT", "29500"}})));
    EXPECT_EQ(resolver.master(), (HostPort{.host = "node0", .port = 29500}));
    EXPECT_FALSE(resolver.rendezvous_file());
  }
}

TEST(OpenMPIClusterResolver, SaysWhatToPassForSeveralMachines) {
  EXPECT_EQ(
      open_mpi_refusal(kTwoMachines),
      "[Open MPI] expected MASTER_ADDR and MASTER_PORT to name where rank 0 listens, for the job has several "
      "machines (OMPI_COMM_WORLD_LOCAL_SIZE=1 of OMPI_COMM_WORLD_SIZE=2), but they are not set: pass them "
      "with "
      "mpirun -x MASTER_ADDR=... -x MASTER_PORT=...");
  EXPECT_EQ(
      open_mpi_refusal(without(kOpenMpi, "PMIX_SERVER_TMPDIR")),
      "[Open MPI] expected MASTER_ADDR and MASTER_PORT to name where rank 0 listens, for PMIX_SERVER_TMPDIR "
      "is "
      "not set either, but they are not set: pass them with mpirun -x MASTER_ADDR=... -x MASTER_PORT=...");
  EXPECT_EQ(open_mpi_refusal(changed(kTwoMachines, {{"MASTER_ADDR", "node0"}})),
            "[Open MPI] expected MASTER_PORT to be a whole number, but it is not set");
}

TEST(OpenMPIClusterResolver, NeedsNothingForAWorldOfOne) {
  const OpenMPIClusterResolver resolver(environment_of({{"OMPI_COMM_WORLD_RANK", "0"},
                                                        {"OMPI_COMM_WORLD_SIZE", "1"},
                                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  EXPECT_EQ(resolver.world_size(), 1);
  EXPECT_FALSE(resolver.master());
  EXPECT_FALSE(resolver.rendezvous_file());
}

TEST(OpenMPIClusterResolver, NamesAMalformedVariableAndItsValue) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"OMPI_COMM_WORLD_RANK", "2"}}, "OMPI_COMM_WORLD_RANK to be a whole number from 0 to 1, but got '2'"},
      {{{"OMPI_COMM_WORLD_SIZE", "0"}},
       "OMPI_COMM_WORLD_SIZE to be a whole number of 1 or more, but got '0'"},
      {{{"OMPI_COMM_WORLD_LOCAL_RANK", "x"}},
       "OMPI_COMM_WORLD_LOCAL_RANK to be a whole number from 0 to 1, but got 'x'"},
      {{{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
       "OMPI_COMM_WORLD_LOCAL_SIZE to be a whole number from 1 to 2, but got '3'"},
      {{{"PMIX_SERVER_TMPDIR", "tmp"}}, "PMIX_SERVER_TMPDIR to be an absolute path, but got 'tmp'"},
      {{{"PMIX_NAMESPACE", "../7"}}, "PMIX_NAMESPACE to be a name without '/', but got '../7'"},
      {{{"PMIX_NAMESPACE", ""}}, "PMIX_NAMESPACE to be a name without '/', but got ''"},
  };
  for (const auto& [changes, message] : cases) {
    EXPECT_EQ(open_mpi_refusal(changed(kOpenMpi, changes)), "[Open MPI] expected " + message);
  }
  EXPECT_EQ(open_mpi_refusal(without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE")),
            "[Open MPI] expected OMPI_COMM_WORLD_LOCAL_SIZE to be a whole number, but it is not set");
}

}  // namespace
}  // namespace lockstep
