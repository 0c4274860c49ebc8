// MultiWorkerMirroredStrategy without other workers: without a cluster, and in tasks that do not train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/metrics.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(MultiWorkerTasks, IsTheSoleWorkerWithoutACluster) {
  MultiWorkerMirroredStrategy strategy(
      std::make_shared<FixedClusterResolver>(ClusterMembership{.source = "no cluster"}), cpu_devices(2));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_TRUE(strategy.is_chief());
  const auto ones = strategy.run([](ReplicaContext&) { return 1; });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ones), 2);
}

const ClusterSpec kTwoWorkersAndMore({{"worker", {{0, {"127.0.0.1", 1}}, {1, {"127.0.0.1", 2}}}},
                                      {"ps", {{0, {"127.0.0.1", 3}}}}});

TEST(MultiWorkerTasks, RefusesAParameterServer) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
                MultiWorkerMirroredStrategy(
                    std::make_shared<SimpleClusterResolver>(kTwoWorkersAndMore, "ps", 0), cpu_devices(1));
              }),
              HasSubstr("this is ps 0"));
}

TEST(MultiWorkerTasks, AnEvaluatorEvaluatesByItselfAndDoesNotTrain) {
  // Nobody listens at the workers' addresses: an evaluator does not look for them.
  MultiWorkerMirroredStrategy strategy(
      std::make_shared<SimpleClusterResolver>(kTwoWorkersAndMore, "evaluator", 1), cpu_devices(2));
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_TRUE(strategy.is_evaluator());
  EXPECT_FALSE(strategy.is_chief());
  const auto data = examples_of_three_classes();
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto mean = strategy.scope([](ReplicaContext&) { return Mean(); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (const auto& batch : batches) {
    strategy.run([](ReplicaContext&, TanhNet& net, Mean& loss,
                    const Example& shard) { loss.update(example_losses(net, shard)); },
                 model, mean, batch);
  }
  EXPECT_NEAR(result(strategy, mean), example_losses(model.primary(), data).mean().item<double>(), 1e-12);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
              }),
              HasSubstr("this is evaluator 1, which evaluates only"));
}

}  // namespace
}  // namespace lockstep
