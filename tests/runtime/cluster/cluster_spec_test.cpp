#include "lockstep/runtime/cluster/cluster_spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

HostPort port_2222_on(const std::string& host) {
  return {.host = host, .port = 2222};
}

TEST(ClusterSpec, AnswersForSparseJobs) {
  const ClusterSpec spec(
      {{"worker", {{7, port_2222_on("c")}, {0, port_2222_on("a")}, {2, port_2222_on("b")}}},
       {"ps", {{1, port_2222_on("p")}}}});
  EXPECT_FALSE(spec.empty());
  EXPECT_TRUE(spec.has_job("worker"));
  EXPECT_FALSE(spec.has_job("chief"));
  EXPECT_EQ(spec.num_tasks("worker"), 3);
  EXPECT_EQ(spec.num_tasks("chief"), 0);
  EXPECT_EQ(spec.task_indices("worker"), (std::vector<int>{0, 2, 7}));
  EXPECT_TRUE(spec.task_indices("chief").empty());
  EXPECT_EQ(spec.task_address("worker", 2), port_2222_on("b"));
  EXPECT_TRUE(spec.has_task("worker", 7));
  EXPECT_FALSE(spec.has_task("worker", 1));
  EXPECT_FALSE(spec.has_task("chief", 0));
}

TEST(ClusterSpec, RanksTheChiefFirstAndWorkersByIndex) {
  const ClusterSpec spec({{"worker", {{7, port_2222_on("c")}, {2, port_2222_on("b")}}},
                          {"chief", {{0, port_2222_on("a")}}},
                          {"evaluator", {{0, port_2222_on("e")}}},
                          {"ps", {{0, port_2222_on("p")}}}});
  EXPECT_EQ(spec.num_training_tasks(), 3);
  EXPECT_EQ(spec.training_rank("chief", 0), 0);
  EXPECT_EQ(spec.training_rank("worker", 2), 1);
  EXPECT_EQ(spec.training_rank("worker", 7), 2);
  EXPECT_EQ(spec.training_addresses(),
            (std::vector<HostPort>{port_2222_on("a"), port_2222_on("b"), port_2222_on("c")}));

  const ClusterSpec without_chief({{"worker", {{7, port_2222_on("c")}, {2, port_2222_on("b")}}}});
  EXPECT_EQ(without_chief.training_rank("worker", 2), 0);
  EXPECT_EQ(without_chief.training_rank("worker", 7), 1);
}

TEST(ClusterSpec, GivesNoRankToTasksThatDoNotTrain) {
  const ClusterSpec spec({{"worker", {{0, port_2222_on("a")}}}, {"ps", {{0, port_2222_on("p")}}}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)spec.training_rank("ps", 0); }),
            "[ClusterSpec] expected a chief or a worker, which train, but got ps 0");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)spec.training_rank("evaluator", 1); }),
            "[ClusterSpec] expected a chief or a worker, which train, but got evaluator 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)spec.training_rank("worker", 1); }),
            "[ClusterSpec] expected a task of the cluster, but got worker 1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)spec.task_address("chief", 0); }),
            "[ClusterSpec] expected a task of the cluster, but got chief 0");
}

TEST(ClusterSpec, RefusesWhatIsNoCluster) {
  const auto refusal = [](const ClusterSpec::Jobs& jobs) {
    return message_of<InvalidArgument>([&] { ClusterSpec{jobs}; });
  };
  EXPECT_EQ(refusal({{"master", {{0, port_2222_on("a")}}}}),
            "[ClusterSpec] expected a job named chief, worker, evaluator or ps, but got 'master'");
  EXPECT_EQ(refusal({{"worker", {{-1, port_2222_on("a")}}}}),
            "[ClusterSpec] expected a task index of 0 or more, but got worker -1");
  EXPECT_EQ(refusal({{"chief", {{0, port_2222_on("a")}, {1, port_2222_on("b")}}}}),
            "[ClusterSpec] expected one chief at most, with index 0, but got chief 1");
  EXPECT_EQ(
      refusal({{"chief", {{0, port_2222_on("a")}}},
               {"worker", {{0, port_2222_on("b")}, {1, port_2222_on("a")}}}}),
      "[ClusterSpec] expected an address of its own for every task, but got a:2222 for chief 0 and worker 1");
}

TEST(ClusterSpec, LeavesOutJobsWithoutTasks) {
  EXPECT_TRUE(ClusterSpec(ClusterSpec::Jobs{{"worker", {}}}).empty());
  EXPECT_EQ(ClusterSpec({{"worker", {{0, port_2222_on("a")}}}, {"ps", {}}}),
            ClusterSpec({{"worker", {{0, port_2222_on("a")}}}}));
}

TEST(ClusterSpec, ComparesTasksAndAddresses) {
  const ClusterSpec spec({{"worker", {{0, port_2222_on("a")}}}});
  EXPECT_NE(spec, ClusterSpec({{"worker", {{0, port_2222_on("b")}}}}));
  EXPECT_NE(spec, ClusterSpec({{"worker", {{1, port_2222_on("a")}}}}));
  EXPECT_NE(spec, ClusterSpec({{"chief", {{0, port_2222_on("a")}}}}));
  EXPECT_NE(spec, ClusterSpec());
}

}  // namespace
}  // namespace lockstep
