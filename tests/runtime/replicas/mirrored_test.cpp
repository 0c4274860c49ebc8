#include "lockstep/runtime/replicas/mirrored.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <sstream>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

TEST(Mirrored, EvalWritesTheMeanOfTheRunningStatisticsIntoEveryReplica) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) { return torch::nn::BatchNorm1d(2); });
  strategy.run(
      [](ReplicaContext& replica, torch::nn::BatchNorm1d& norm) {
        norm->running_mean.fill_(3.0 * replica.replica_id());        // 0, 3, 6
        norm->running_var.fill_(1.0 + replica.replica_id() % 2);     // 1, 2, 1
        norm->num_batches_tracked.fill_(10 + replica.replica_id());  // replica 0's wins
      },
      model);
  model.eval();
  for (const auto& norm : model.local_values()) {
    EXPECT_FALSE(norm->is_training());
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({2}, 3.0)));
    EXPECT_TRUE(torch::allclose(norm->running_var, torch::full({2}, 4.0 / 3)));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 10);
  }
}

TEST(Mirrored, TrainSwitchesFlagsOnly) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto model =
      strategy.scope([](ReplicaContext&) { return std::make_shared<torch::nn::BatchNorm1dImpl>(2); });
  model.local_values()[1]->running_mean.fill_(8);
  model.train(false);
  for (const auto& norm : model.local_values()) EXPECT_FALSE(norm->is_training());
  EXPECT_EQ(model.local_values()[0]->running_mean[0].item<double>(), 0.0);
  EXPECT_EQ(model.local_values()[1]->running_mean[0].item<double>(), 8.0);
  model.train();
  for (const auto& norm : model.local_values()) EXPECT_TRUE(norm->is_training());
  model.eval();
  EXPECT_EQ(model.local_values()[0]->running_mean[0].item<double>(), 4.0);
}

TEST(Mirrored, StatisticsOfShardsAverageToThoseOfEqualHalves) {
  // With momentum 1 the running mean is the last batch's: the mean of two equal shards' means is its mean.
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(3).momentum(1.0));
    norm->to(torch::kDouble);
    return norm;
  });
  torch::manual_seed(4);
  const auto batch = torch::randn({8, 3}, torch::kDouble);
  strategy.run([](ReplicaContext& replica, torch::nn::BatchNorm1d& norm,
                  const torch::Tensor& data) { norm->forward(data.narrow(0, 4 * replica.replica_id(), 4)); },
               model, batch);
  model.eval();
  EXPECT_LE((model.primary()->running_mean - batch.mean(0)).abs().max().item<double>(), 1e-15);
}

TEST(Mirrored, PrimaryIsReplicaZeros) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto values = strategy.scope([](ReplicaContext& replica) { return replica.replica_id() + 5; });
  EXPECT_EQ(values.primary(), 5);
  std::ostringstream stream;
  stream << values;
  EXPECT_EQ(stream.str(), "{0: 5 (cpu:0), 1: 6 (cpu:1)}");
}

}  // namespace
}  // namespace lockstep
