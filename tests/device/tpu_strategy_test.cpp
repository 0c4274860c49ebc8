#include "lockstep/strategies/mirrored/tpu_strategy.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/make_strategy.h"
#include "lockstep/tests/device/test_device_test_support.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class TpuStrategy : public TestDevice {};

std::vector<std::string> first_devices(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("testdevice:" + std::to_string(i));
  return names;
}

std::vector<torch::Tensor> trained_over_tpus(TPUStrategy& strategy) {
  const Example data = examples_of_three_classes();
  torch::manual_seed(17);
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
  }
  std::vector<torch::Tensor> values;
  for (const auto& parameter : model.primary()->parameters()) values.push_back(parameter.detach().cpu());
  return values;
}

TEST_F(TpuStrategy, EqualsOneCpuOnOneTwoAndFourDevices) {
  const auto expected = trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), momentum_sgd());
  for (const int count : {1, 2, 4}) {
    TPUStrategy strategy(nullptr, {.devices = first_devices(count)}, {.intra_op_threads = 1});
    EXPECT_EQ(strategy.num_replicas_in_sync(), count);
    EXPECT_LE(largest_difference(trained_over_tpus(strategy), expected), 1e-12) << count << " devices";
  }
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(TpuStrategy, TakesAllDevicesOfThePluginByDefault) {
  TPUStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_THAT(strategy.describe(),
              HasSubstr("TPUStrategy with 4 replicas on testdevice:0 testdevice:1 testdevice:2 "
                        "testdevice:3, HierarchicalCopyAllReduce"));
}

TEST_F(TpuStrategy, IsMadeByName) {
  const auto made = make_strategy("tpu", {.devices = {"testdevice:1"}});
  EXPECT_EQ(made.strategy->name(), "TPUStrategy");
  EXPECT_EQ(made.strategy->devices()[0].str(), "testdevice:1");
}

TEST_F(TpuStrategy, AssignsTensorsToTheDevicesOfAReplica) {
  TPUStrategy strategy(nullptr, {.devices_per_replica = 2}, {.intra_op_threads = 1});
  ASSERT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.devices_of_replicas()[1][1].str(), "testdevice:3");
  const auto places = strategy.run([&](ReplicaContext& replica) {
    const auto x = torch::ones({2}, torch::TensorOptions(replica.device()).requires_grad(true));
    EXPECT_TRUE(strategy.assign_to_logical_device(replica, x, 0).is_same(x));
    const auto there = strategy.assign_to_logical_device(replica, x, 1);
    (there * 3).sum().backward();
    EXPECT_EQ(x.grad().device(), replica.device()) << "gradients flow back";
    EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 3.0)));
    return there.device().str();
  });
  EXPECT_EQ(places.local_values(), (std::vector<std::string>{"testdevice:1", "testdevice:3"}));
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(TpuStrategy, RefusesLogicalDevicesThatAReplicaHasNot) {
  TPUStrategy strategy(nullptr, {.devices = {"testdevice:2"}}, {.intra_op_threads = 1});
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run([&](ReplicaContext& replica) {
                  strategy.assign_to_logical_device(replica, torch::ones({1}, replica.device()), 1);
                });
              }),
              HasSubstr("expected a logical device below 1, as a replica has 1 device, but got 1"));
}

TEST_F(TpuStrategy, RefusesAPluginWithoutHardware) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process in which nothing was used
  EXPECT_EXIT(
      {
        test_device::set_device_count(0);
        std::string why;
        try {
          TPUStrategy strategy;
        } catch (const InvalidArgument& error) {
          why = error.what();
        }
        std::cerr << why << '\n';
        std::_Exit(test_device::operators_begun(0) == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "expected a testdevice device, but its plugin finds no hardware on this machine");
}

TEST_F(TpuStrategy, RefusesOtherDevicesAndCountsThatDoNotFit) {
  const auto refusal = [](const TPUOptions& tpus) {
    return message_of<InvalidArgument>([&] { TPUStrategy strategy(nullptr, tpus); });
  };
  EXPECT_THAT(refusal({.devices = {"testdevice:0", "cpu:0"}}),
              HasSubstr("expected testdevice devices only, but got cpu:0, which MirroredStrategy takes"));
  EXPECT_THAT(refusal({.devices_per_replica = 3}),
              HasSubstr("expected a number of devices a replica that divides 4, but got 3"));
  EXPECT_THAT(refusal({.devices_per_replica = 0}), HasSubstr("that divides 4, but got 0"));
  EXPECT_THAT(refusal({.devices = {"testdevice:0"}, .devices_per_replica = 2}),
              HasSubstr("expected 1 device a replica, since this process has one device, but got 2"));
}

}  // namespace
}  // namespace lockstep
