#include "lockstep/runtime/cluster/internal/job_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/cluster/internal/munge_authentication.h"
#include "lockstep/runtime/cluster/internal/user_secret.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/tests/runtime/cluster/job_token.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

/// A user whose variables name a folder for the secret.
class JobSecretTest : public ::testing::Test {
 protected:
  std::string secret_of(const ClusterResolver& resolver, const ClusterOptions& options = {}) const {
    return job_secret(resolver, options, {}, environment_of({{"XDG_RUNTIME_DIR", folder_.path()}})).token;
  }
  /// The secret of a process that a launcher has started with these variables.
  std::string secret_of(const Variables& variables) const {
    return secret_of(*resolve_cluster(environment_of(variables)), cluster_options(environment_of(variables)));
  }
  std::string refusal_of(const Variables& variables) const {
    return message_of<InvalidArgument>([&] { secret_of(variables); });
  }
  bool has_made_a_file() const { return !std::filesystem::is_empty(folder_.path()); }

  const testing::TemporaryFolder folder_;
};

Variables tf_config(const std::string& address) {
  return {{"TF_CONFIG", R"({"cluster": {"worker": ["127.0.0.1:1", ")" + address +
                            R"("]}, "task": {"type": "worker", "index": 0}})"}};
}

Variables torchrun_at(const std::string& host) {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", host},
          {"MASTER_PORT", "9"},
          {"TORCHELASTIC_RUN_ID", "none"}};
}

Variables slurm_on(const std::string& nodes) {
  return {{"SLURM_JOB_ID", "42"},         {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "1"},          {"SLURM_NODEID", "0"},
          {"SLURM_LOCALID", "1"},         {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_NODELIST", nodes}, {"SLURM_STEP_TASKS_PER_NODE", "2"}};
}

const Variables kMpiOnOneMachine{{"OMPI_COMM_WORLD_RANK", "0"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                 {"PMIX_SERVER_TMPDIR", "/tmp"},      {"PMIX_NAMESPACE", "job.1"}};

TEST_F(JobSecretTest, IsTheTokenIfThereIsOne) {
  const SimpleClusterResolver elsewhere({"10.0.0.1:1", "10.0.0.2:1"}, 0);
  EXPECT_EQ(secret_of(elsewhere, {.token = kJobToken}), kJobToken);
  EXPECT_FALSE(has_made_a_file());
}

TEST_F(JobSecretTest, RefusesATokenOfTheProgramThatCouldBeGuessed) {
  const SimpleClusterResolver resolver({"127.0.0.1:1", "127.0.0.1:2"}, 0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { secret_of(resolver, {.token = "s3cret"}); }),
              AllOf(HasSubstr("ClusterOptions::token: expected a secret of 128 bits or more"),
                    Not(HasSubstr("s3cret"))));
}

TEST_F(JobSecretTest, IsMadeOnLoopbackHoweverTheJobIsStarted) {
  for (const auto& variables :
       {tf_config("127.0.0.1:2"), tf_config("127.8.9.10:2"), tf_config("localhost:2"), tf_config("[::1]:2"),
        tf_config("[0:0:0:0:0:0:0:1]:2"), tf_config("LOCALHOST:2"), torchrun_at("127.0.0.1"),
        torchrun_at("localhost"), slurm_on("localhost"), kMpiOnOneMachine,
        changed(kMpiOnOneMachine, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "9"}}),
        changed(tf_config("127.0.0.1:2"), {{"LOCKSTEP_ADDRESS", "127.0.0.1"}})})
    EXPECT_THAT(secret_of(variables), MatchesRegex("[0-9a-f]{64}")) << variables.begin()->second;
}

TEST_F(JobSecretTest, IsRefusedForOtherAddressesHoweverTheJobIsStarted) {
  const Variables kubernetes{{"KUBERNETES_SERVICE_HOST", "10.1.0.1"},
                             {"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "train-master-0"},
                             {"MASTER_PORT", "23456"}};
  const struct {
    Variables variables;
    std::string named;
  } jobs[] = {
      {tf_config("10.0.0.2:2"), "worker 1, 10.0.0.2,"},
      {tf_config("128.0.0.1:2"), "worker 1, 128.0.0.1,"},
      {tf_config("0.0.0.0:2"), "worker 1, 0.0.0.0,"},
      {tf_config("node7:2"), "worker 1, node7,"},
      {tf_config("localhost.example:2"), "worker 1, localhost.example,"},
      {tf_config("[fe80::1]:2"), "worker 1, fe80::1,"},
      {torchrun_at("node7"), "worker 0, node7,"},
      {slurm_on("node7"), "worker 0, node7,"},
      {changed(slurm_on("localhost"), {{"MASTER_ADDR", "node7"}}), "worker 0, node7,"},
      {changed(kMpiOnOneMachine, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "9"}}), "worker 0, 10.0.0.1,"},
      {kubernetes, "worker 0, train-master-0,"},
      {changed(tf_config("127.0.0.1:2"), {{"LOCKSTEP_ADDRESS", "10.0.0.7"}}),
       "this process (LOCKSTEP_ADDRESS), 10.0.0.7,"},
  };
  for (const auto& job : jobs)
    EXPECT_THAT(refusal_of(job.variables),
                AllOf(HasSubstr("expected a job token"), HasSubstr("the address of " + job.named),
                      HasSubstr("same secret for all processes of the job"),
                      HasSubstr("export LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)"),
                      HasSubstr("scripts/make_token.sh")));
  EXPECT_FALSE(has_made_a_file());
}

TEST_F(JobSecretTest, LooksAtTheServersToo) {
  const ClusterSpec spec({{"chief", {{0, {"127.0.0.1", 1}}}},
                          {"worker", {{0, {"127.0.0.1", 2}}}},
                          {"ps", {{0, {"127.0.0.1", 3}}, {1, {"10.0.0.9", 3}}}}});
  EXPECT_THAT(message_of<InvalidArgument>([&] { secret_of(SimpleClusterResolver(spec, "worker", 0)); }),
              HasSubstr("the address of ps 1, 10.0.0.9,"));
}

TEST_F(JobSecretTest, IsTheSameInAllProcessesOfAJobAndNotInOtherJobs) {
  const auto secret = [&](const std::string& job, int task) {
    return secret_of(FixedClusterResolver(ClusterMembership{.source = "a launcher",
                                                            .task_id = task,
                                                            .rank = task,
                                                            .world_size = 2,
                                                            .master = HostPort{"127.0.0.1", 1},
                                                            .job_id = job}));
  };
  std::set<std::string> secrets;
  for (const char* job : {"", "1", "12", "job 1"}) {
    EXPECT_EQ(secret(job, 0), secret(job, 1)) << job;
    secrets.insert(secret(job, 0));
  }
  EXPECT_EQ(secrets.size(), 4U);
  // Nor does it tell the user's secret, which other jobs have in common with it.
  EXPECT_FALSE(secrets.contains(user_secret(environment_of({{"XDG_RUNTIME_DIR", folder_.path()}})).hex()));
}

TEST_F(JobSecretTest, IsByMungeUnderSlurmOnlyIfAllTasksKnowTheFirstTasksAddress) {
  const ClusterOptions options{.munge_socket = folder_.file("socket")};
  sockaddr_un address{.sun_family = AF_UNIX};
  options.munge_socket.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  if (!MungeAuthentication::is_present(options.munge_socket)) GTEST_SKIP() << "needs libmunge2";

  const auto under_slurm = environment_of({{"SLURM_JOB_ID", "42"}, {"XDG_RUNTIME_DIR", folder_.path()}});
  const auto mpi = resolve_cluster(environment_of(kMpiOnOneMachine));
  EXPECT_EQ(job_secret(*mpi, options, {}, under_slurm).token, secret_of(*mpi));
  const auto srun = resolve_cluster(environment_of(slurm_on("localhost")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { job_secret(*srun, options, {}, under_slurm); }),
              HasSubstr("expected munged to answer at " + options.munge_socket));
  auto without_munge = options;
  without_munge.uses_munge = false;
  EXPECT_EQ(job_secret(*srun, without_munge, {}, under_slurm).token, secret_of(*srun));
}

TEST_F(JobSecretTest, IsNotByTwoSourcesAtOnce) {
  const auto mpi = resolve_cluster(environment_of(kMpiOnOneMachine));
  const ClusterOptions both{.certificate = UserCertificate{}, .uses_munge = true};
  EXPECT_THAT(message_of<InvalidArgument>([&] { secret_of(*mpi, both); }),
              HasSubstr("certificates (LOCKSTEP_CERTIFICATE) or MUNGE (LOCKSTEP_MUNGE=1), but got both"));
}

TEST_F(JobSecretTest, NeedsAFolderOrAToken) {
  const SimpleClusterResolver resolver({"127.0.0.1:1", "127.0.0.1:2"}, 0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { job_secret(resolver, {}, {}, environment_of({})); }),
              AllOf(HasSubstr("cannot make a secret for this job, which has no token"), HasSubstr("HOME"),
                    HasSubstr("export LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)")));
  EXPECT_EQ(job_secret(resolver, {.token = kJobToken}, {}, environment_of({})).token, kJobToken);
}

}  // namespace
}  // namespace lockstep
