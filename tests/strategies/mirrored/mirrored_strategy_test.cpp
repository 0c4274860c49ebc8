#include "lockstep/strategies/mirrored/mirrored_strategy.h"

#include <gtest/gtest.h>

#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of_devices(const Strategy& strategy) {
  std::vector<std::string> names;
  for (const auto& device : strategy.devices()) names.push_back(device.str());
  return names;
}

TEST(MirroredStrategyDevices, KeepTheOrderInTheirCanonicalSpelling) {
  MirroredStrategy strategy({"CPU:1", "/device:cpu:0"});
  EXPECT_EQ(names_of_devices(strategy), (std::vector<std::string>{"cpu:1", "cpu:0"}));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.num_local_replicas(), 2);
  EXPECT_EQ(strategy.cluster_resolver(), nullptr);
}

TEST(MirroredStrategyDevices, AreAllGpusOrElseTheCpuWhereNoneIsGiven) {
  MirroredStrategy strategy({});
  if (num_gpus() == 0) {
    EXPECT_EQ(names_of_devices(strategy), (std::vector<std::string>{"cpu:0"}));
  } else {
    EXPECT_EQ(strategy.num_replicas_in_sync(), num_gpus());
    for (const auto& device : strategy.devices()) EXPECT_EQ(device.type, c10::DeviceType::CUDA);
  }
}

TEST(MirroredStrategyDevices, UnknownRepeatedAndEmptyOnesAreRefusedByNameWithWhatThereIs) {
  const auto refusal = [](const std::vector<std::string>& devices) {
    return message_of<InvalidArgument>([&] { MirroredStrategy strategy(devices); });
  };
  for (const std::string bad : {"gpu:x", "GPU:99", "cpu:-1", "tpu", ""}) {
    const auto message = refusal({"cpu:0", bad});
    EXPECT_NE(message.find("'" + bad + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("available: cpu:N"), std::string::npos) << message;
  }
  const auto twice = refusal({"cpu:1", "/device:CPU:1"});
  EXPECT_NE(twice.find("cpu:1 is named twice"), std::string::npos) << twice;
}

TEST(MirroredStrategyOps, AnExplicitOpThatCannotServeTheDevicesIsRefusedAtConstruction) {
  const auto message = message_of<InvalidArgument>([] {
    MirroredStrategy strategy(cpu_devices(2), {.cross_device_ops = std::make_shared<NcclAllReduce>()});
  });
  EXPECT_NE(message.find("replica 0 is on cpu:0"), std::string::npos) << message;
}

TEST(MirroredStrategyOps, DescribeSaysWhichAndWhy) {
  MirroredStrategy chosen(cpu_devices(2));
  EXPECT_EQ(chosen.describe(),
            "MirroredStrategy with 2 replicas on cpu:0 cpu:1, HierarchicalCopyAllReduce (replicas share this "
            "process's "
            "memory)");
  MirroredStrategy asked(cpu_devices(1), {.cross_device_ops = std::make_shared<ReductionToOneDevice>()});
  EXPECT_EQ(asked.describe(),
            "MirroredStrategy with 1 replica on cpu:0, ReductionToOneDevice (as asked for)");
}

TEST(MirroredStrategyOptions, AreChecked) {
  const auto message = message_of<InvalidArgument>(
      [] { MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = -1}); });
  EXPECT_NE(message.find("0 or more threads a replica, but got -1"), std::string::npos) << message;
  EXPECT_THROW(cpu_devices(0), InvalidArgument);
}

TEST(MirroredStrategyOptions, SetTheThreadsOfEachReplicasOperators) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 3});
  const auto threads = strategy.run([](ReplicaContext&) { return at::get_num_threads(); });
  EXPECT_EQ(threads.local_values(), (std::vector<int>{3, 3}));
}

TEST(MirroredStrategyOptions, DefaultToTheThreadsOfTheEnvironment) {
  setenv("OMP_NUM_THREADS", "3", 1);
  MirroredStrategy strategy(cpu_devices(2));
  MirroredStrategy with_option(cpu_devices(2), {.intra_op_threads = 2});
  unsetenv("OMP_NUM_THREADS");
  const auto threads = [](ReplicaContext&) { return at::get_num_threads(); };
  EXPECT_EQ(strategy.run(threads).local_values(), (std::vector<int>{3, 3}));
  EXPECT_EQ(with_option.run(threads).local_values(), (std::vector<int>{2, 2}));
}

TEST(OneDeviceStrategy, HasOneReplicaOnTheDeviceNamed) {
  OneDeviceStrategy strategy("cpu:3");
  EXPECT_EQ(names_of_devices(strategy), (std::vector<std::string>{"cpu:3"}));
  const auto seen = strategy.run([](ReplicaContext& replica) { return replica.logical_device(); });
  EXPECT_EQ(seen.local_values()[0].str(), "cpu:3");
  EXPECT_THROW(OneDeviceStrategy("gpu:x"), InvalidArgument);
}

TEST(OneDeviceStrategy, ItsCollectivesAreTheIdentity) {
  OneDeviceStrategy strategy("cpu:0");
  const auto result = strategy.run([](ReplicaContext& replica) {
    const auto value = torch::tensor({2.0, 3.0});
    return torch::cat({replica.all_reduce(ReduceOp::kSum, value), replica.all_gather(value)});
  });
  EXPECT_TRUE(torch::equal(result.local_values()[0], torch::tensor({2.0, 3.0, 2.0, 3.0})));
}

TEST(GetStrategy, IsTheDefaultOneWithOneReplica) {
  const auto strategy = get_strategy();
  EXPECT_EQ(strategy->name(), "DefaultStrategy");
  EXPECT_EQ(strategy->num_replicas_in_sync(), 1);
  EXPECT_EQ(names_of_devices(*strategy)[0], num_gpus() > 0 ? "gpu:0" : "cpu:0");
}

}  // namespace
}  // namespace lockstep
