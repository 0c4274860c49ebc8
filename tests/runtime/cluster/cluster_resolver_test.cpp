#include "lockstep/runtime/cluster/cluster_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/tf_config_cluster_resolver.h"
#include "lockstep/runtime/cluster/union_cluster_resolver.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

HostPort address_at(const std::string& host, int port = 2222) {
  return {.host = host, .port = port};
}

const ClusterSpec kFourJobs({{"chief", {{0, address_at("a")}}},
                             {"worker", {{0, address_at("b")}, {1, address_at("c")}}},
                             {"ps", {{0, address_at("p")}}},
                             {"evaluator", {{0, address_at("e")}}}});

TEST(SimpleClusterResolver, AnswersForEveryTask) {
  const SimpleClusterResolver chief(kFourJobs, "chief", 0);
  EXPECT_EQ(chief.rank(), 0);
  const SimpleClusterResolver worker(kFourJobs, "worker", 1);
  EXPECT_EQ(worker.rank(), 2);
  EXPECT_EQ(worker.world_size(), 3);
  EXPECT_EQ(worker.task_type(), "worker");
  EXPECT_EQ(worker.task_id(), 1);
  EXPECT_EQ(worker.cluster_spec(), kFourJobs);
  for (const char* type : {"chief", "worker", "ps", "evaluator"}) {
    EXPECT_EQ(SimpleClusterResolver(kFourJobs, type, 0).master(), address_at("a")) << type;
    EXPECT_EQ(SimpleClusterResolver(kFourJobs, type, 0).world_size(), 3) << type;
  }
  EXPECT_FALSE(worker.is_master_served_by_launcher());
  EXPECT_EQ(worker.job_id(), "");
  EXPECT_FALSE(worker.rendezvous_file());
}

TEST(SimpleClusterResolver, HasNoRankForTasksThatDoNotTrain) {
  for (const std::string type : {"ps", "evaluator"}) {
    const SimpleClusterResolver resolver(kFourJobs, type, 0);
    EXPECT_EQ(message_of<InvalidArgument>([&] { (void)resolver.rank(); }),
              "[the program's cluster] expected a chief or a worker, which have a rank, but this is " + type +
                  " 0");
  }
}

TEST(SimpleClusterResolver, TakesTheFirstWorkerForMasterWithoutAChief) {
  const ClusterSpec spec({{"worker", {{3, address_at("b")}, {5, address_at("c")}}}});
  EXPECT_EQ(SimpleClusterResolver(spec, "worker", 5).master(), address_at("b"));
  EXPECT_EQ(SimpleClusterResolver(spec, "worker", 5).rank(), 1);
}

TEST(SimpleClusterResolver, CountsTheProcessesOfAMachine) {
  const ClusterSpec spec(
      {{"chief", {{0, address_at("a", 1)}}},
       {"worker", {{0, address_at("b", 1)}, {1, address_at("a", 2)}, {2, address_at("a", 3)}}},
       {"ps", {{0, address_at("a", 4)}}}});
  const SimpleClusterResolver third(spec, "worker", 2);
  EXPECT_EQ(third.local_rank(), 2);
  EXPECT_EQ(third.local_world_size(), 3);
  const SimpleClusterResolver alone(spec, "worker", 0);
  EXPECT_EQ(alone.local_rank(), 0);
  EXPECT_EQ(alone.local_world_size(), 1);
}

TEST(SimpleClusterResolver, IsASingleProcessWithoutACluster) {
  const SimpleClusterResolver resolver(ClusterSpec(), "worker", 0);
  EXPECT_EQ(resolver.rank(), 0);
  EXPECT_EQ(resolver.world_size(), 1);
  EXPECT_EQ(resolver.local_world_size(), 1);
  EXPECT_FALSE(resolver.master());
}

TEST(SimpleClusterResolver, RefusesATaskThatIsNotThere) {
  const auto refusal = [](const std::string& type, int index) {
    return message_of<InvalidArgument>([&] { SimpleClusterResolver(kFourJobs, type, index); });
  };
  EXPECT_THAT(refusal("worker", 2), HasSubstr("expected a task of the cluster, but got worker 2"));
  EXPECT_THAT(refusal("worker", -1), HasSubstr("expected a task index of 0 or more, but got worker -1"));
  EXPECT_THAT(refusal("evaluator", 1), HasSubstr("expected a task of the cluster, but got evaluator 1"));
  EXPECT_THAT(refusal("master", 0),
              HasSubstr("expected a task of type chief, worker, evaluator or ps, but got master 0"));
}

TEST(SimpleClusterResolver, ReadsFlags) {
  const SimpleClusterResolver resolver(std::vector<std::string>{"a:1", "b:1", "a:2"}, 2);
  EXPECT_EQ(resolver.source(), "flags (--task-index 2 of 3 in --worker-hosts)");
  EXPECT_EQ(
      resolver.cluster_spec(),
      ClusterSpec({{"worker", {{0, address_at("a", 1)}, {1, address_at("b", 1)}, {2, address_at("a", 2)}}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.rank(), 2);
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.master(), address_at("a", 1));
}

TEST(SimpleClusterResolver, RefusesBadFlags) {
  const auto refusal = [](const std::vector<std::string>& hosts, int index) {
    return message_of<InvalidArgument>([&] { SimpleClusterResolver(hosts, index); });
  };
  EXPECT_EQ(refusal({"a:1", "b"}, 0),
            "[flags] expected --worker-hosts[1] to be host:port with a port, but got 'b'");
  EXPECT_EQ(refusal({"a:1", "A:1"}, 0),
            "[flags] expected --worker-hosts[1] to be an address of its own, but got 'A:1' as in "
            "--worker-hosts[0]");
  EXPECT_EQ(refusal({"a:1", "b:1"}, 2),
            "[flags] expected --task-index to be an index of --worker-hosts, 0 to 1, but got 2");
  EXPECT_EQ(refusal({"a:1", "b:1"}, -1),
            "[flags] expected --task-index to be an index of --worker-hosts, 0 to 1, but got -1");
  EXPECT_EQ(refusal({}, 0), "[flags] expected --worker-hosts to name a host:port, but got none");
}

TEST(TFConfigClusterResolver, ReadsTheVariable) {
  const TFConfigClusterResolver resolver(environment_of(
      {{"TF_CONFIG",
        R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})"}}));
  EXPECT_EQ(resolver.source(), "TF_CONFIG");
  EXPECT_EQ(resolver.rank(), 1);
  EXPECT_EQ(resolver.world_size(), 2);
  EXPECT_EQ(resolver.master(), address_at("a", 1));
  EXPECT_EQ(message_of<InvalidArgument>([] { TFConfigClusterResolver resolver(environment_of({})); }),
            "[TF_CONFIG] expected TF_CONFIG to be set, but it is not set");
}

const Variables kTwoWorkers = {
    {"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"}};

TEST(TFConfigClusterResolver, ReadsTheJobsNameAndItsRestarts) {
  const TFConfigClusterResolver first(environment_of(kTwoWorkers));
  EXPECT_EQ(first.restart_count(), 0);
  EXPECT_EQ(first.job_id(), "");
  const TFConfigClusterResolver later(
      environment_of(changed(kTwoWorkers, {{"LOCKSTEP_RESTART_COUNT", "2"}, {"LOCKSTEP_JOB_ID", "a3"}})));
  EXPECT_EQ(later.restart_count(), 2);
  EXPECT_EQ(later.job_id(), "a3");
  EXPECT_EQ(later.rank(), 1);
}

TEST(TFConfigClusterResolver, RefusesARestartCountThatIsNoNumber) {
  for (const std::string count : {"", "-1", "2x", "99999999999"}) {
    EXPECT_EQ(message_of<InvalidArgument>([&] {
                TFConfigClusterResolver resolver(
                    environment_of(changed(kTwoWorkers, {{"LOCKSTEP_RESTART_COUNT", count}})));
              }),
              "[TF_CONFIG] expected LOCKSTEP_RESTART_COUNT to be a whole number of 0 or more, but got '" +
                  count + "'");
  }
}

std::shared_ptr<const ClusterResolver> simple_resolver(const ClusterSpec& spec, const std::string& type,
                                                       int index) {
  return std::make_shared<SimpleClusterResolver>(spec, type, index);
}

TEST(UnionClusterResolver, MergesClustersAndIsTheFirstOnesTask) {
  const ClusterSpec workers({{"worker", {{0, address_at("b")}, {1, address_at("c")}}}});
  const ClusterSpec others({{"chief", {{0, address_at("a")}}},
                            {"worker", {{1, address_at("c")}}},
                            {"ps", {{0, address_at("p")}}}});
  const UnionClusterResolver resolver(
      {simple_resolver(workers, "worker", 1), simple_resolver(others, "ps", 0)});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"chief", {{0, address_at("a")}}},
                                                  {"worker", {{0, address_at("b")}, {1, address_at("c")}}},
                                                  {"ps", {{0, address_at("p")}}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rank(), 2);
  EXPECT_EQ(resolver.world_size(), 3);
  EXPECT_EQ(resolver.master(), address_at("b"));
  EXPECT_EQ(resolver.source(), "union of the program's cluster, the program's cluster");
}

TEST(UnionClusterResolver, KeepsWhatALauncherSaysWithoutAddresses) {
  const auto launched =
      std::make_shared<FixedClusterResolver>(ClusterMembership{.source = "launcher",
                                                               .task_id = 3,
                                                               .rank = 3,
                                                               .world_size = 4,
                                                               .master = address_at("m"),
                                                               .is_master_served_by_launcher = true,
                                                               .local_rank = 1,
                                                               .local_world_size = 2,
                                                               .restart_count = 5,
                                                               .job_id = "job",
                                                               .rendezvous_file = "/file"});
  const ClusterSpec servers({{"ps", {{0, address_at("p")}}}});
  const UnionClusterResolver resolver({launched, simple_resolver(servers, "ps", 0)});
  EXPECT_EQ(resolver.cluster_spec(), servers);
  EXPECT_EQ(resolver.rank(), 3);
  EXPECT_EQ(resolver.world_size(), 4);
  EXPECT_EQ(resolver.master(), address_at("m"));
  EXPECT_TRUE(resolver.is_master_served_by_launcher());
  EXPECT_EQ(resolver.local_rank(), 1);
  EXPECT_EQ(resolver.local_world_size(), 2);
  EXPECT_EQ(resolver.restart_count(), 5);
  EXPECT_EQ(resolver.job_id(), "job");
  EXPECT_EQ(resolver.rendezvous_file(), "/file");
}

TEST(UnionClusterResolver, NamesBothAddressesOfAConflict) {
  const ClusterSpec one({{"worker", {{0, address_at("b")}}}});
  const ClusterSpec other({{"worker", {{0, address_at("c")}}}});
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        UnionClusterResolver({simple_resolver(one, "worker", 0), simple_resolver(other, "worker", 0)});
      }),
      "[UnionClusterResolver] expected one address for worker 0, but got b:2222 and, from the program's "
      "cluster, c:2222");
  const ClusterSpec second_task({{"worker", {{1, address_at("b")}}}});
  EXPECT_THAT(
      message_of<InvalidArgument>([&] {
        UnionClusterResolver({simple_resolver(one, "worker", 0), simple_resolver(second_task, "worker", 1)});
      }),
      HasSubstr("b:2222 for worker 0 and worker 1"));
}

TEST(UnionClusterResolver, RefusesNoResolverAndANullOne) {
  EXPECT_THAT(message_of<InvalidArgument>([] { UnionClusterResolver({}); }), HasSubstr("but got none"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                UnionClusterResolver({simple_resolver(ClusterSpec(), "worker", 0), nullptr});
              }),
              HasSubstr("but got a null"));
}

}  // namespace
}  // namespace lockstep
