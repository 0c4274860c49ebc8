#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_images/options/command_line.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

std::string refusal(const StrategyChoice& options) {
  try {
    choose_strategy(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(StrategyChoice, TakesLogicalCpusForReplicasWithoutGpus) {
  if (num_gpus() > 0) GTEST_SKIP() << "this machine has GPUs, which --replicas takes first";
  const auto made = choose_strategy({.strategy = "auto", .replicas = 3});
  EXPECT_EQ(made.strategy->name(), "MirroredStrategy");
  EXPECT_EQ(made.strategy->devices(), logical_cpus(3));
  EXPECT_THAT(made.reason, HasSubstr("mirrored"));
}

TEST(StrategyChoice, TakesNamedDevicesInTheirOrder) {
  const auto made = choose_strategy({.strategy = "mirrored", .devices = {"CPU:1", "cpu:0"}});
  const Devices expected{{c10::DeviceType::CPU, 1}, {c10::DeviceType::CPU, 0}};
  EXPECT_EQ(made.strategy->devices(), expected);
}

TEST(StrategyChoice, WarnsOfAWorkerWithoutACluster) {
  const auto errors_of = [](const StrategyChoice& choice) {
    ::testing::internal::CaptureStderr();
    choose_strategy(choice, {.program = "a_program"});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(errors_of({.strategy = "multi_worker", .devices = {"cpu:0"}}),
              HasSubstr("a_program: warning: --strategy multi_worker: no cluster was found"));
  EXPECT_THAT(errors_of({.strategy = "auto", .devices = {"cpu:0"}}), Not(HasSubstr("warning")));
}

/// Sets a variable of this process while it exists.
class VariableSet {
 public:
  VariableSet(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~VariableSet() { unsetenv(name_); }
  VariableSet(const VariableSet&) = delete;
  VariableSet& operator=(const VariableSet&) = delete;

 private:
  const char* name_;
};

TEST(StrategyChoice, RefusesAWorkerThatSlurmTellsTooLittle) {
  const VariableSet tasks("SLURM_NTASKS", "2"), rank("SLURM_PROCID", "1"), job("SLURM_JOB_ID", "7");
  EXPECT_THAT(refusal({.strategy = "multi_worker", .devices = {"cpu:0"}}),
              AllOf(HasSubstr("--strategy multi_worker: this is a Slurm job with several tasks, but "
                              "SLURM_STEP_ID, SLURM_NODEID, SLURM_LOCALID"),
                    HasSubstr("start the program by srun")));
  EXPECT_EQ(refusal({.strategy = "auto", .devices = {"cpu:0"}}), "not refused");
}

TEST(StrategyChoice, RefusesAxesAlongWhichSequencesAreCut) {
  const auto with_mesh = [](const std::string& mesh) {
    return refusal({.strategy = "mirrored", .devices = {"cpu:0", "cpu:1"}, .mesh = mesh});
  };
  EXPECT_THAT(with_mesh("context=2"), HasSubstr("--mesh context=2: expected axes that the models of"));
  EXPECT_THAT(with_mesh("inner=2:context"), HasSubstr("but got inner, along which sequences are cut"));
  EXPECT_EQ(with_mesh("data=2,context=1"), "not refused");
}

TEST(StrategyChoice, PutsSeveralReplicasOnEachDevice) {
  const auto made = choose_strategy({.strategy = "auto", .devices = {"cpu:0"}, .replicas_per_device = 2});
  EXPECT_EQ(made.strategy->name(), "MirroredStrategy");
  const Devices expected{{c10::DeviceType::CPU, 0}, {c10::DeviceType::CPU, 0}};
  EXPECT_EQ(made.strategy->devices(), expected);
  for (const std::string strategy : {"default", "one_device"}) {
    EXPECT_THAT(refusal({.strategy = strategy, .replicas_per_device = 2}),
                HasSubstr("--strategy " + strategy +
                          " --replicas-per-device 2: expected 1 replica a device, but got 2"));
  }
}

TEST(StrategyChoice, CutsBatchesByWeights) {
  const StrategyChoice two{.strategy = "mirrored", .devices = {"cpu:0", "cpu:1"}};
  const auto with_weights = [&](const std::string& weights) {
    StrategyChoice choice = two;
    choice.replica_weights = weights;
    return choice;
  };
  EXPECT_EQ(choose_strategy(with_weights("1,2.5")).strategy->replica_weights(),
            (std::vector<double>{1, 2.5}));
  EXPECT_THAT(choose_strategy(with_weights("measured")).strategy->describe(),
              HasSubstr("batches cut by measured weights (equal so far)"));
  EXPECT_THAT(choose_strategy(two).strategy->describe(), Not(HasSubstr("batches cut")));
  EXPECT_THAT(refusal(with_weights("1,x")),
              HasSubstr("--replica-weights 1,x: expected measured, or positive numbers"));
  EXPECT_THAT(refusal(with_weights("1,,2")), HasSubstr("but got ''"));
  EXPECT_THAT(refusal(with_weights("1,2,")), HasSubstr("but got ''"));
  EXPECT_THAT(refusal(with_weights("1,0")),
              HasSubstr("--strategy mirrored --devices cpu:0,cpu:1 --replica-weights 1,0: expected positive "
                        "replica_weights, one for each of the 2 replicas, but got 1, 0"));
  EXPECT_THAT(refusal(with_weights("1,2,3")), HasSubstr("for each of the 2 replicas, but got 1, 2, 3"));
}

TEST(StrategyChoice, RefusesTpusWithoutAPlugin) {
  EXPECT_THAT(
      refusal({.strategy = "tpu"}),
      HasSubstr("--strategy tpu: expected a plugin with devices, but LibTorch has none in this process"));
}

TEST(StrategyChoice, GivesOneDeviceStrategyADevice) {
  EXPECT_EQ(choose_strategy({.strategy = "one_device"}).strategy->num_replicas_in_sync(), 1);
  EXPECT_EQ(choose_strategy({.strategy = "one_device", .devices = {"cpu:1"}}).strategy->devices()[0].str(),
            "cpu:1");
}

TEST(StrategyChoice, HandsOnThreadsAndCrossDeviceOps) {
  const auto made = choose_strategy({.strategy = "mirrored",
                                     .devices = {"cpu:0", "cpu:1"},
                                     .cross_device_ops = "reduction_to_one_device",
                                     .threads = 1});
  EXPECT_EQ(made.strategy->cross_device_ops().name(), "ReductionToOneDevice");
  const auto threads = made.strategy->run([](ReplicaContext&) { return at::get_num_threads(); });
  EXPECT_EQ(threads.local_values(), (std::vector<int>{1, 1}));
}

TEST(StrategyChoice, FailsAReplicaThatHasWaitedForTheTimeoutAndNamesTheMissingOne) {
  const auto made = choose_strategy(
      {.strategy = "mirrored", .devices = {"cpu:0", "cpu:1"}, .communication_timeout_seconds = 1});
  std::promise<std::string> failure;
  auto message = failure.get_future();
  // The run itself fails because replica 1 has returned without joining.
  EXPECT_ANY_THROW(made.strategy->run([&](ReplicaContext& replica) {
    if (replica.replica_id() == 1) return static_cast<void>(message.wait_for(std::chrono::minutes(1)));
    try {
      replica.all_reduce(ReduceOp::kSum, torch::ones({}));
    } catch (const CollectiveAborted& error) {
      failure.set_value(error.what());
      throw;
    }
  }));
  ASSERT_EQ(message.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_THAT(message.get(), HasSubstr("timed out after 1 s; missing: replica 1"));
}

TEST(StrategyChoice, HasTheLibrarysTimeout) {
  EXPECT_EQ(std::chrono::seconds(StrategyChoice().communication_timeout_seconds), StrategyOptions().timeout);
}

// This test program is linked with tests/custom_strategy's source, as docs/custom_strategy.md describes.
TEST(StrategyChoice, TakesAUsersOwnStrategyByItsName) {
  if (num_gpus() == 1) GTEST_SKIP() << "this machine has one GPU, of which --replicas 2 takes two";
  const auto line = parse_command_line({"--strategy", "finite_steps", "--replicas", "2"}, strategy_names());
  const auto made = choose_strategy(line.options);
  EXPECT_EQ(made.strategy->name(), "FiniteStepsStrategy");
  EXPECT_EQ(made.strategy->num_replicas_in_sync(), 2);
  EXPECT_EQ(made.reason, "finite_steps: asked for by name");
  EXPECT_EQ(choose_strategy({.strategy = "finite_steps", .replicas = 2}).strategy->devices(),
            made.strategy->devices());
}

TEST(StrategyChoice, RefusesSeveralReplicasOfStrategiesThatHaveOne) {
  EXPECT_EQ(refusal({.strategy = "default", .replicas = 2}),
            "--replicas 2: expected 1 with --strategy default, which has one replica; mirrored takes more");
  EXPECT_THAT(refusal({.strategy = "one_device", .replicas = 2}), HasSubstr("--replicas 2: expected 1"));
  EXPECT_EQ(choose_strategy({.strategy = "default", .replicas = 1}).strategy->num_replicas_in_sync(), 1);
}

TEST(StrategyChoice, NamesTheFlagsThatDoNotGoTogether) {
  EXPECT_THAT(refusal({.strategy = "default", .devices = {"cpu:0"}}),
              HasSubstr("--strategy default --devices cpu:0: expected no devices"));
  EXPECT_THAT(refusal({.strategy = "mirrored", .devices = {"cpu:0", "cpu:1"}, .cross_device_ops = "nccl"}),
              HasSubstr("--cross-device-ops nccl: expected GPUs only, but replica 0 is on cpu:0"));
  EXPECT_EQ(refusal({.strategy = "mirrored", .worker_hosts = {"a:1", "b:2"}, .task_index = 0}),
            "--worker-hosts a:1,b:2: expected it with --strategy multi_worker or tpu only, but got "
            "--strategy mirrored");
}

TEST(StrategyChoice, TakesTheClusterOfTheFlags) {
  const auto made = choose_strategy({.strategy = "auto", .worker_hosts = {"127.0.0.1:1"}, .task_index = 0});
  EXPECT_EQ(made.strategy->name(), "MultiWorkerMirroredStrategy");
  EXPECT_THAT(made.reason, HasSubstr("--worker-hosts"));
  EXPECT_THAT(refusal({.strategy = "auto", .worker_hosts = {"127.0.0.1:1"}, .task_index = 1}),
              HasSubstr("--task-index"));
}

TEST(StrategyChoice, TakesParameterServersWhereTheProgramTrainsByThem) {
  struct InCluster {
    InCluster() {
      setenv("TF_CONFIG",
             R"({"cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]},
                 "task": {"type": "ps", "index": 0}})",
             1);
    }
    ~InCluster() { unsetenv("TF_CONFIG"); }
  };
  const InCluster in_cluster;
  for (const std::string strategy : {"auto", "multi_worker"})
    EXPECT_THAT(refusal({.strategy = strategy}), HasSubstr("this program trains without parameter servers"));
  EXPECT_EQ(requested_cluster({.strategy = "parameter_server"})->task_type(), "ps");
  EXPECT_EQ(requested_cluster({.strategy = "mirrored"}), nullptr);
  EXPECT_THAT(
      [] { choose_strategy({.strategy = "parameter_server"}, {.parameters = ParameterServerOptions()}); },
      ThrowsMessage<UsageError>(
          HasSubstr("--strategy parameter_server: expected a chief or a worker, but got ps")));
}

TEST(StrategyChoice, TheTrainersStrategiesAreAllButParameterServers) {
  EXPECT_THAT(strategies_of_trainer({"default", "parameter_server", "mine"}),
              ::testing::ElementsAre("default", "mine"));
}

}  // namespace
}  // namespace lockstep::apps
