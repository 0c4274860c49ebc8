// Sharded units in a MirroredStrategy: made in scope, trained in runs, against one device.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"

namespace lockstep {
namespace {

std::vector<std::string> cpus(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("cpu:" + std::to_string(i));
  return names;
}

UnitOptions place_of(const ReplicaContext& replica) {
  return {.index = replica.replica_id(), .size = replica.num_replicas()};
}

/// A convolution and a batch norm over all replicas.
template <typename Norm>
struct ImageBlockImpl : torch::nn::Module {
  ImageBlockImpl() {
    conv =
        register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 3, 3).padding(1).bias(false)));
    norm = register_module("norm", Norm(3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(norm->forward(conv(x))) + x; }
  torch::nn::Conv2d conv{nullptr};
  Norm norm{nullptr};
};
using SyncImageBlock = ImageBlockImpl<SyncBatchNorm>;
using PlainImageBlock = ImageBlockImpl<torch::nn::BatchNorm2d>;

template <typename Model>
auto make_adam(const Model& model) {
  return torch::optim::Adam(model->parameters(), torch::optim::AdamOptions(1e-3));
}

class ShardedStrategyTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, ShardedStrategyTest, testing::Values(2, 4));

TEST_P(ShardedStrategyTest, TrainsAConvolutionalNetAsOneDevice) {
  const int replicas = GetParam();
  torch::manual_seed(3);
  torch::nn::Sequential plain;
  for (int i = 0; i < 3; ++i) plain->push_back(std::make_shared<PlainImageBlock>());
  torch::manual_seed(3);
  MirroredStrategy strategy(cpus(replicas), {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext& replica) {
    std::vector<ElementFactory> blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.emplace_back([] { return std::make_shared<SyncImageBlock>(); });
    }
    return shard_elements(blocks, place_of(replica));
  });
  expect_same(assembled(model.local_values(), false), parameters_of(plain, false), 0);
  const auto images = torch::randn({8, 3, 4, 4}, torch::kDouble);
  auto adam = make_adam(plain);
  std::vector<std::unique_ptr<torch::optim::Adam>> adams;
  for (const auto& own : model.local_values())
    adams.push_back(std::make_unique<torch::optim::Adam>(make_adam(own)));
  for (int step = 0; step < 5; ++step) {
    adam.zero_grad();
    const auto expected = plain->forward(images + 0.1 * step);
    expected.square().sum().backward();
    adam.step();
    const auto results = strategy.run(
        [&](ReplicaContext& replica, ShardedSequential& own) {
          auto& optimizer = *adams[static_cast<size_t>(replica.replica_id())];
          optimizer.zero_grad();
          const auto shard = images.tensor_split(replica.num_replicas())[replica.replica_id()];
          const auto y = own->forward(shard + 0.1 * step);
          y.square().sum().backward();
          optimizer.step();
          return y.detach();
        },
        model);
    EXPECT_LE(largest_difference({torch::cat(results.local_values())}, {expected}), kExact);
  }
  expect_same(assembled(model.local_values(), false), parameters_of(plain, false));
  for (const auto& own : model.local_values()) {
    EXPECT_EQ(own->named_buffers().keys(), plain->named_buffers().keys());
    EXPECT_LE(largest_difference(own->buffers(), plain->buffers()), kExact);
    EXPECT_EQ(gathered_units(*own).counts().most_units, 2);
  }
}

TEST_P(ShardedStrategyTest, ReplicasKeepTheirOwnPartsAndEqualBuffers) {
  MirroredStrategy strategy(cpus(GetParam()), {.intra_op_threads = 1});
  auto model =
      strategy.scope([](ReplicaContext& replica) { return Sharded<AttentionBlock>(place_of(replica)); });
  int64_t elements = 0;
  for (const auto& own : model.local_values()) {
    for (const auto& parameter : own->parameters()) elements += sharded_parameter_of(parameter)->length;
  }
  int64_t expected = 0;
  for (const auto& parameter : AttentionBlock()->parameters()) expected += parameter.numel();
  EXPECT_EQ(elements, expected);
}

TEST_P(ShardedStrategyTest, AReplicaThatThrowsInAUnitLeavesTheStrategyUsable) {
  MirroredStrategy strategy(cpus(GetParam()), {.intra_op_threads = 1});
  auto model =
      strategy.scope([](ReplicaContext& replica) { return Sharded<AttentionBlock>(place_of(replica)); });
  const auto step = [&](ReplicaContext& replica, Sharded<AttentionBlock>& own, bool fails) {
    const auto x = torch::randn({2, 3, fails && replica.replica_id() == 1 ? 7 : 8}, torch::kDouble);
    own->forward(x).sum().backward();
  };
  EXPECT_ANY_THROW(strategy.run(step, model, true));
  strategy.run(step, model, false);
  for (const auto& own : model.local_values()) EXPECT_EQ(gathered_units(*own).counts().units, 0);
}

TEST_P(ShardedStrategyTest, RefusesUnitsOfAnotherNumberOfParts) {
  MirroredStrategy strategy(cpus(GetParam()), {.intra_op_threads = 1});
  EXPECT_THROW(strategy.scope([](ReplicaContext& replica) {
    return Sharded<AttentionBlock>(UnitOptions{.index = replica.replica_id(), .size = 8});
  }),
               InvalidArgument);
}

}  // namespace
}  // namespace lockstep
