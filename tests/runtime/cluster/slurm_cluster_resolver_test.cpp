#include "lockstep/runtime/cluster/slurm_cluster_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Variables as srun sets them for the fourth of five tasks on two of a job's three nodes.
const Variables kSlurm = {{"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_JOB_NUM_NODES", "3"},
                          {"SLURM_JOB_NODELIST", "n[01-03]"},
                          {"SLURM_STEP_NODELIST", "n[01-02]"},
                          {"SLURM_TASKS_PER_NODE", "3(x3)"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3,2"}};

HostPort slurm_address(const std::string& host, int port) {
  return {.host = host, .port = port};
}

std::string slurm_refusal(const Variables& variables, const SlurmClusterOptions& options = {}) {
  return message_of<InvalidArgument>(
      [&] { SlurmClusterResolver resolver(environment_of(variables), options); });
}

TEST(SlurmClusterResolver, ReadsTheStep) {
  const SlurmClusterResolver resolver(environment_of(kSlurm));
  EXPECT_EQ(resolver.source(), "Slurm (step 4711.2, SLURM_PROCID=3 of SLURM_STEP_NUM_TASKS=5)");
  EXPECT_EQ(resolver.rank(), 3);
  EXPECT_EQ(resolver.world_size(), 5);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 3);
  EXPECT_EQ(resolver.local_rank(), 0);
  EXPECT_EQ(resolver.local_world_size(), 2);
  EXPECT_EQ(resolver.job_id(), "4711.2");
  EXPECT_EQ(resolver.restart_count(), 0);
  EXPECT_EQ(resolver.master(), slurm_address("n01", 8888));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker",
                                                   {{0, slurm_address("n01", 8888)},
                                                    {1, slurm_address("n01", 8889)},
                                                    {2, slurm_address("n01", 8890)},
                                                    {3, slurm_address("n02", 8888)},
                                                    {4, slurm_address("n02", 8889)}}}}));
}

TEST(SlurmClusterResolver, ReadsTheJobWhereTheStepHasNoVariables) {
  const SlurmClusterResolver resolver(environment_of({{"SLURM_JOB_ID", "4711"},
                                                      {"SLURM_STEP_ID", "0"},
                                                      {"SLURM_PROCID", "1"},
                                                      {"SLURM_LOCALID", "0"},
                                                      {"SLURM_NODEID", "1"},
                                                      {"SLURM_NTASKS", "2"},
                                                      {"SLURM_JOB_NUM_NODES", "2"},
                                                      {"SLURM_JOB_NODELIST", "a,b"},
                                                      {"SLURM_TASKS_PER_NODE", "1(x2)"},
                                                      {"SLURM_RESTART_COUNT", "1"}}));
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.cluster_spec().task_address("worker", 1), slurm_address("b", 8888));
  EXPECT_EQ(resolver.restart_count(), 1);
}

TEST(SlurmClusterResolver, LaysTasksOutInTurnsForACyclicStep) {
  const SlurmClusterResolver resolver(environment_of(changed(
      kSlurm, {{"SLURM_DISTRIBUTION", "cyclic:block"}, {"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}})));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker",
                                                   {{0, slurm_address("n01", 8888)},
                                                    {1, slurm_address("n02", 8888)},
                                                    {2, slurm_address("n01", 8889)},
                                                    {3, slurm_address("n02", 8889)},
                                                    {4, slurm_address("n01", 8890)}}}}));
  EXPECT_EQ(resolver.local_rank(), 1);
}

// As srun --nodes=2 --ntasks=7 --distribution=plane=2 of Slurm 22.05 placed them.
TEST(SlurmClusterResolver, LaysTasksOutInPlanes) {
  const Variables of_job = changed(kSlurm, {{"SLURM_DISTRIBUTION", "plane"},
                                            {"SLURM_DIST_PLANESIZE", "2"},
                                            {"SLURM_STEP_NUM_TASKS", "7"},
                                            {"SLURM_STEP_TASKS_PER_NODE", "4,3"}});
  const std::vector<std::pair<int, int>> placed = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}};
  for (size_t rank = 0; rank < placed.size(); ++rank) {
    const auto [node, local_index] = placed[rank];
    const SlurmClusterResolver resolver(
        environment_of(changed(of_job, {{"SLURM_PROCID", std::to_string(rank)},
                                        {"SLURM_NODEID", std::to_string(node)},
                                        {"SLURM_LOCALID", std::to_string(local_index)}})));
    EXPECT_EQ(resolver.cluster_spec().task_address("worker", static_cast<int>(rank)),
              slurm_address(node == 0 ? "n01" : "n02", 8888 + local_index));
    EXPECT_EQ(resolver.local_rank(), local_index);
  }
  EXPECT_EQ(slurm_refusal(without(of_job, "SLURM_DIST_PLANESIZE")),
            "[Slurm] expected SLURM_DIST_PLANESIZE to be a whole number, but it is not set");
}

TEST(SlurmClusterResolver, RefusesAnArbitraryLayoutOnEveryTask) {
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(slurm_refusal(changed(
                  kSlurm, {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_PROCID", std::to_string(rank)}})),
              "[Slurm] expected SLURM_DISTRIBUTION to be block, cyclic or plane (start it with srun "
              "--distribution=block), but got 'arbitrary'");
  }
  const SlurmClusterResolver on_one_node(environment_of(changed(kSlurm, {{"SLURM_DISTRIBUTION", "arbitrary"},
                                                                         {"SLURM_STEP_NODELIST", "n01"},
                                                                         {"SLURM_STEP_NUM_NODES", "1"},
                                                                         {"SLURM_STEP_TASKS_PER_NODE", "5"},
                                                                         {"SLURM_NODEID", "0"},
                                                                         {"SLURM_LOCALID", "3"}})));
  EXPECT_EQ(on_one_node.local_rank(), 3);
}

TEST(SlurmClusterResolver, RefusesALayoutThatItCannotKnow) {
  EXPECT_EQ(slurm_refusal(changed(kSlurm, {{"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "1"}})),
            "[Slurm] expected SLURM_PROCID=3 on SLURM_NODEID=1 with SLURM_LOCALID=0, but got 0 and 1: start "
            "it with "
            "srun --distribution=block");
}

TEST(SlurmClusterResolver, ReplacesTheMasterAndThePorts) {
  const auto master = [](const Variables& changes) {
    return SlurmClusterResolver(environment_of(changed(kSlurm, changes))).master();
  };
  EXPECT_EQ(master({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}),
            slurm_address("10.0.0.1", 29500));
  EXPECT_EQ(master({{"MASTER_ADDR", "n01-ib"}}), slurm_address("n01-ib", 8888));
  EXPECT_EQ(master({{"MASTER_PORT", "29500"}}), slurm_address("n01", 29500));
  const SlurmClusterResolver resolver(environment_of(kSlurm), {.port_base = 65533});
  EXPECT_EQ(resolver.cluster_spec().task_address("worker", 2), slurm_address("n01", 65535));
  EXPECT_THAT(slurm_refusal(kSlurm, {.port_base = 65534}),
              HasSubstr("expected a port_base from 1 to 65533 for 3 tasks on a node, but got 65534"));
  EXPECT_THAT(slurm_refusal(kSlurm, {.port_base = 0}), HasSubstr("but got 0"));
}

TEST(SlurmClusterResolver, NamesMalformedAndContradictingVariables) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"SLURM_PROCID", "5"}}, "SLURM_PROCID to be a whole number from 0 to 4, but got '5'"},
      {{{"SLURM_PROCID", "x"}}, "SLURM_PROCID to be a whole number from 0 to 4, but got 'x'"},
      {{{"SLURM_NODEID", "2"}}, "SLURM_NODEID to be a whole number from 0 to 1, but got '2'"},
      {{{"SLURM_LOCALID", "-1"}}, "SLURM_LOCALID to be a whole number of 0 or more, but got '-1'"},
      {{{"SLURM_JOB_ID", "x"}}, "SLURM_JOB_ID to be a whole number of 0 or more, but got 'x'"},
      {{{"SLURM_STEP_ID", "x"}}, "SLURM_STEP_ID to be a whole number of 0 or more, but got 'x'"},
      {{{"SLURM_STEP_NUM_TASKS", "0"}},
       "SLURM_STEP_NUM_TASKS to be a whole number from 1 to 1048576, but got '0'"},
      {{{"SLURM_STEP_NUM_TASKS", "4"}},
       "SLURM_STEP_NUM_TASKS to be 5, the sum of SLURM_STEP_TASKS_PER_NODE, but got '4'"},
      {{{"SLURM_STEP_NODELIST", "n[01-"}},
       "SLURM_STEP_NODELIST to be numbers in brackets such as [01-03,7], but got 'n[01-' (wrong at character "
       "6)"},
      {{{"SLURM_STEP_NODELIST", "-n,b"}}, "a node's name to be a name or an address as host, but got '-n'"},
      {{{"SLURM_STEP_TASKS_PER_NODE", "3,2,1"}},
       "SLURM_STEP_TASKS_PER_NODE to be counts for 2, the nodes of SLURM_STEP_NODELIST, but got '3,2,1'"},
      {{{"SLURM_STEP_NUM_NODES", "3"}},
       "SLURM_STEP_NUM_NODES to be 2, the nodes of SLURM_STEP_NODELIST, but got '3'"},
      {{{"MASTER_PORT", "99999"}}, "MASTER_PORT to be a whole number from 1 to 65535, but got '99999'"},
      {{{"MASTER_ADDR", "a b"}}, "MASTER_ADDR to be a name or an address as host, but got 'a b'"},
  };
  for (const auto& [changes, message] : cases) {
    EXPECT_EQ(slurm_refusal(changed(kSlurm, changes)), "[Slurm] expected " + message);
  }
  for (const std::string name :
       {"SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    EXPECT_EQ(slurm_refusal(without(kSlurm, name)),
              "[Slurm] expected " + name + " to be a whole number, but it is not set");
  }
}

TEST(SlurmClusterResolver, BoundsAStepOfContradictingSize) {
  EXPECT_THAT(slurm_refusal(changed(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1048576"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "2147483647(x2)"}})),
              HasSubstr("expected SLURM_STEP_NUM_TASKS to be 4294967294, the sum"));
  EXPECT_THAT(slurm_refusal(changed(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1048576"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "1,1048575"},
                                             {"SLURM_LOCALID", "2"},
                                             {"SLURM_DISTRIBUTION", "block"}})),
              HasSubstr("expected a port_base"));
}

TEST(SlurmClusterResolver, DetectsTasksOfSrunOnly) {
  const auto detects = [](const Variables& variables) {
    return SlurmClusterResolver::detects(environment_of(variables));
  };
  EXPECT_TRUE(detects(kSlurm));
  EXPECT_TRUE(detects(changed(kSlurm, {{"SLURM_PROCID", "x"}})));
  EXPECT_TRUE(detects(changed(kSlurm, {{"SLURM_STEP_ID", "x"}})));
  EXPECT_FALSE(detects({{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "4"}})) << "the shell of sbatch";
  EXPECT_FALSE(detects(without(kSlurm, "SLURM_STEP_ID"))) << "the same with the first task's SLURM_PROCID";
  EXPECT_FALSE(detects(changed(kSlurm, {{"SLURM_STEP_ID", "4294967291"}}))) << "the batch step";
  EXPECT_FALSE(detects(changed(kSlurm, {{"SLURM_STEP_ID", "4294967290"}}))) << "the interactive step";

  const Variables one_task = changed(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"}});
  EXPECT_TRUE(detects(one_task));
  EXPECT_FALSE(detects(changed(one_task, {{"SLURM_PTY_PORT", "40000"}}))) << "srun --pty bash";
  EXPECT_TRUE(detects(changed(kSlurm, {{"SLURM_PTY_PORT", "40000"}}))) << "srun in the shell of salloc";
}

TEST(SlurmClusterResolver, LeavesProcessesOfMpirunToOpenMpi) {
  const auto detects = [](const std::string& rank, const std::string& size) {
    return SlurmClusterResolver::detects(
        environment_of(changed(kSlurm, {{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}})));
  };
  EXPECT_TRUE(detects("3", "5"));
  EXPECT_FALSE(detects("3", "8"));
  EXPECT_FALSE(detects("4", "5"));
}

TEST(SlurmClusterResolver, ListsWhatOneOfSeveralTasksLacks) {
  const auto missing = [](Variables variables) {
    return SlurmClusterResolver::missing_variables(environment_of(variables));
  };
  EXPECT_THAT(missing(kSlurm), IsEmpty());
  EXPECT_THAT(missing({}), IsEmpty());
  EXPECT_THAT(missing({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}), IsEmpty());
  EXPECT_THAT(missing({{"SLURM_JOB_ID", "4711"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_JOB_NODELIST", "n1"}}),
              ElementsAre("SLURM_STEP_ID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"));
}

}  // namespace
}  // namespace lockstep
