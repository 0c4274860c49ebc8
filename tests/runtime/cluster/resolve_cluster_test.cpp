#include "lockstep/runtime/cluster/resolve_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::StartsWith;

const Variables kTfConfigSource = {
    {"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"}};
const Variables kTorchrunSource = {{"RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCAL_RANK", "0"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "node0"},
                                   {"MASTER_PORT", "29500"},
                                   {"TORCHELASTIC_RUN_ID", "7"}};
const Variables kKubernetesSource = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                     {"RANK", "0"},
                                     {"WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "train-master-0"},
                                     {"MASTER_PORT", "23456"}};
const Variables kSlurmSource = {{"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "1"},         {"SLURM_LOCALID", "1"},
                                {"SLURM_NODEID", "0"},         {"SLURM_NTASKS", "2"},
                                {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}};
const Variables kOpenMpiSource = {{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"PMIX_NAMESPACE", "7"},
                                  {"PMIX_SERVER_TMPDIR", "/tmp/session"}};

const Variables kTpuSource = {{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "1"}};

Variables merged_variables(const std::vector<Variables>& sources) {
  Variables all;
  for (const Variables& source : sources) all = changed(all, source);
  return all;
}

std::string winning_source(const Variables& variables, const ClusterFlags& flags = {}) {
  const auto resolver = resolve_cluster(environment_of(variables), flags);
  return resolver ? resolver->source() : "none";
}

TEST(ResolveCluster, FindsEachSource) {
  EXPECT_EQ(winning_source({}, {.worker_hosts = {"a:1"}, .task_index = 0}),
            "flags (--task-index 0 of 1 in --worker-hosts)");
  EXPECT_EQ(winning_source(kTfConfigSource), "TF_CONFIG");
  EXPECT_THAT(winning_source(kTorchrunSource), StartsWith("torchrun"));
  EXPECT_THAT(winning_source(kKubernetesSource), StartsWith("Kubernetes"));
  EXPECT_THAT(winning_source(kSlurmSource), StartsWith("Slurm"));
  EXPECT_THAT(winning_source(kOpenMpiSource), StartsWith("Open MPI"));
  EXPECT_EQ(winning_source(kTpuSource), "TPU (TPU_WORKER_ID=1 of 2 hosts)");
}

TEST(ResolveCluster, PrefersTheEarlierSource) {
  const ClusterFlags flags{.worker_hosts = {"a:1"}, .task_index = 0};
  Variables variables = merged_variables(
      {kKubernetesSource, kTfConfigSource, kTorchrunSource, kSlurmSource, kOpenMpiSource, kTpuSource});
  EXPECT_THAT(winning_source(variables, flags), StartsWith("flags"));
  EXPECT_EQ(winning_source(variables), "TF_CONFIG");
  variables = without(variables, "TF_CONFIG");
  EXPECT_THAT(winning_source(variables), StartsWith("torchrun"));
  variables = without(without(variables, "TORCHELASTIC_RUN_ID"), "LOCAL_RANK");
  EXPECT_THAT(winning_source(variables), StartsWith("Kubernetes"));
  variables = without(variables, "KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(message_of<InvalidArgument>([&] { winning_source(variables); }),
            "[torchrun] expected LOCAL_RANK to be a whole number, but it is not set");
  variables = without(without(variables, "RANK"), "WORLD_SIZE");
  EXPECT_THAT(winning_source(variables), StartsWith("Slurm"));
  variables = without(variables, "SLURM_PROCID");
  EXPECT_THAT(winning_source(variables), StartsWith("Open MPI"));
  variables = without(variables, "LOCAL_WORLD_SIZE");
  variables = without(without(variables, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_SIZE");
  EXPECT_THAT(winning_source(variables), StartsWith("TPU"));
}

TEST(ResolveCluster, FindsNoneInAPlainShell) {
  EXPECT_EQ(winning_source({}), "none");
  EXPECT_EQ(winning_source({{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"}}), "none");
  EXPECT_EQ(
      winning_source({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}),
      "none");
  EXPECT_EQ(winning_source(without(kSlurmSource, "SLURM_PROCID")), "none");
  EXPECT_EQ(winning_source(without(kSlurmSource, "SLURM_STEP_ID")), "none");
  EXPECT_EQ(winning_source({{"SLURM_JOB_ID", "4711"},
                            {"SLURM_STEP_ID", "4294967290"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_NTASKS", "1"}}),
            "none");
}

TEST(ResolveCluster, PassesOverAnEmptyTfConfig) {
  EXPECT_EQ(winning_source({{"TF_CONFIG", "{}"}}), "none");
  EXPECT_EQ(winning_source({{"TF_CONFIG", "{}"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}), "none");
  EXPECT_THAT(winning_source(changed(kTorchrunSource, {{"TF_CONFIG", R"({"cluster": {}})"}})),
              StartsWith("torchrun"));
  const auto evaluator =
      resolve_cluster(environment_of({{"TF_CONFIG", R"({"task": {"type": "evaluator", "index": 0}})"}}));
  ASSERT_NE(evaluator, nullptr);
  EXPECT_EQ(evaluator->task_type(), "evaluator");
}

TEST(ResolveCluster, NeverSkipsAMalformedSource) {
  const auto refusal = [](const Variables& bad) {
    // Slurm's and Open MPI's variables are valid and come next in order.
    return message_of<InvalidArgument>([&] {
      winning_source(changed(merged_variables({kSlurmSource, kOpenMpiSource}), bad));
    });
  };
  EXPECT_EQ(refusal({{"TF_CONFIG", ""}}), "[TF_CONFIG] expected JSON, but got an empty string");
  EXPECT_EQ(refusal({{"TF_CONFIG", "[]"}}), "[TF_CONFIG] expected the value to be a JSON object, but got []");
  EXPECT_EQ(refusal({{"RANK", "0"}}),
            "[torchrun] expected WORLD_SIZE to be a whole number, but it is not set");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}),
            "[Kubernetes] expected WORLD_SIZE to be a whole number, but it is not set");
  EXPECT_EQ(refusal({{"SLURM_NODEID", "x"}}),
            "[Slurm] expected SLURM_NODEID to be a whole number from 0 to 0, but got 'x'");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              winning_source({{"OMPI_COMM_WORLD_RANK", "0"}});
            }),
            "[Open MPI] expected OMPI_COMM_WORLD_SIZE to be a whole number, but it is not set");
}

TEST(ResolveCluster, WantsBothFlagsOrNeither) {
  EXPECT_EQ(message_of<InvalidArgument>([] { winning_source(kTfConfigSource, {.worker_hosts = {"a:1"}}); }),
            "[flags] expected --task-index together with --worker-hosts, but got no --task-index");
  EXPECT_EQ(message_of<InvalidArgument>([] { winning_source(kTfConfigSource, {.task_index = 0}); }),
            "[flags] expected --worker-hosts together with --task-index, but got no --worker-hosts");
}

TEST(ResolveCluster, TakesMpirunsProcessesInASlurmJobFromOpenMpi) {
  // mpirun starts its daemon on the second of two machines with srun, so the daemon's variables are set too.
  const Variables daemon =
      changed(merged_variables({kSlurmSource, kOpenMpiSource}), {{"SLURM_PROCID", "0"},
                                                                 {"SLURM_LOCALID", "0"},
                                                                 {"SLURM_NTASKS", "1"},
                                                                 {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  EXPECT_THAT(winning_source(daemon), StartsWith("Open MPI"));
}

TEST(ProcessEnvironment, LooksUpThisProcessesVariables) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(path, nullptr);
  const Environment environment = process_environment();
  EXPECT_EQ(environment("PATH"), std::string(path));
  EXPECT_FALSE(environment("LOCKSTEP_VARIABLE_THAT_IS_NOT_SET"));
}

}  // namespace
}  // namespace lockstep
