// Sharded training on GPUs: parts of optimizer states, gradients and parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/strategies/sharding/sharding_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

/// A layer, two blocks that may be units, and a layer.
template <typename Block>
struct NetOfBlocksImpl : torch::nn::Module {
  template <typename Make>
  explicit NetOfBlocksImpl(const Make& make) {
    input = register_module("input", torch::nn::Linear(6, 5));
    first = register_module("first", make());
    second = register_module("second", make());
    output = register_module("output", torch::nn::Linear(5, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return output(second->forward(first->forward(torch::tanh(input(x)))));
  }

  torch::nn::Linear input{nullptr};
  Block first{nullptr}, second{nullptr};
  torch::nn::Linear output{nullptr};
};
template <typename Block>
using NetOfBlocks = std::shared_ptr<NetOfBlocksImpl<Block>>;

NetOfBlocks<MlpBlock> plain_net() {
  return std::make_shared<NetOfBlocksImpl<MlpBlock>>([] { return MlpBlock(); });
}

NetOfBlocks<Sharded<MlpBlock>> net_of_units(ReplicaContext& replica) {
  return std::make_shared<NetOfBlocksImpl<Sharded<MlpBlock>>>(
      [&] { return Sharded<MlpBlock>(along(replica.axis("data"))); });
}

struct ShardedPlacement {
  std::string name;
  std::vector<std::string> devices;
  int replicas_per_device = 1;
  std::string ops = "auto";
};

void PrintTo(const ShardedPlacement& placement, std::ostream* stream) {
  *stream << placement.name;
}

struct Steps {
  bool are_captured = false;
  bool are_on_host = false;
  /// A step is captured after steps of warming up.
  Schedule schedule() const { return {.epochs = are_captured ? kEpochs : few_if_sanitized(kEpochs, 2)}; }
};

/// Trains as trained_alone() does.
template <typename Net, typename MakeNet>
NamedTensors trained_in_parts(const ShardedPlacement& placement, int stage, const Steps& steps,
                              const MakeNet& make_net) {
  MirroredStrategy strategy(placement.devices, {.cross_device_ops = ops_named(placement.ops),
                                                .replicas_per_device = placement.replicas_per_device,
                                                .sharding = {.stage = stage < 3 ? stage : 0,
                                                             .host_optimizer_state = steps.are_on_host}});
  torch::manual_seed(17);
  auto model = strategy.scope(make_net);
  auto optimizer = strategy.scope([&](ReplicaContext& replica) -> OptimizerPointer {
    return std::make_unique<FusedSgd>(model[replica]->parameters(), FusedSgdOptions(0.1).momentum(0.9));
  });
  const auto data = examples_of_three_classes();
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  CudaGraph graph(plain_step<Net>, {.warm_up_runs = 1});
  for (int epoch = 0; epoch < steps.schedule().epochs; ++epoch) {
    for (const auto& batch : batches) {
      if (steps.are_captured) {
        strategy.run(graph, model, optimizer, batch);
      } else {
        strategy.run(plain_step<Net>, model, optimizer, batch);
      }
    }
  }
  if (steps.are_captured) {
    EXPECT_EQ(graph.statistics().captures, 1);
    EXPECT_GT(graph.statistics().replays, 3);
  }
  return assembled(model.local_values(), false);
}

class ShardedGpu : public testing::TestWithParam<std::tuple<int, ShardedPlacement>> {
 protected:
  static void expect_the_training_of_one_device(const Steps& steps) {
    const auto& [stage, placement] = GetParam();
    LOCKSTEP_NEEDS_GPUS(static_cast<int>(placement.devices.size()));
    forget_races();
    const auto trained =
        stage < 3 ? trained_in_parts<NetOfBlocks<MlpBlock>>(placement, stage, steps,
                                                            [](ReplicaContext&) { return plain_net(); })
                  : trained_in_parts<NetOfBlocks<Sharded<MlpBlock>>>(placement, stage, steps, net_of_units);
    const auto expected = trained_alone<NetOfBlocks<MlpBlock>>(
        plain_net, examples_of_three_classes(), momentum_sgd(), {.schedule = steps.schedule()});
    torch::manual_seed(17);
    const auto names = plain_net()->named_parameters().keys();
    ASSERT_EQ(trained.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i)
      EXPECT_LT(largest_difference({trained.at(names[i])}, {expected[i]}), kExact) << names[i];
    expect_no_races();
  }
};

INSTANTIATE_TEST_SUITE_P(
    Placements, ShardedGpu,
    testing::Combine(testing::Values(1, 2, 3),
                     testing::Values(ShardedPlacement{"TwoOnOneGpu", {"gpu:0"}, 2},
                                     ShardedPlacement{"ThreeOnOneGpu", {"gpu:0"}, 3},
                                     ShardedPlacement{"OneGpuByNccl", {"gpu:0"}, 1, "nccl"},
                                     ShardedPlacement{"TwoGpusByNccl", {"gpu:0", "gpu:1"}, 1, "nccl"})),
    [](const auto& info) {
      return "Stage" + std::to_string(std::get<0>(info.param)) + std::get<1>(info.param).name;
    });

TEST_P(ShardedGpu, EqualsLibTorchAloneOnTheCpu) {
  expect_the_training_of_one_device({});
}

TEST_P(ShardedGpu, EqualsLibTorchAloneOnTheCpuWithItsOptimizersStateOnTheHost) {
  expect_the_training_of_one_device({.are_on_host = true});
}

TEST_P(ShardedGpu, StepsOfStageOneCanBeCaptured) {
  const auto& [stage, placement] = GetParam();
  LOCKSTEP_NEEDS_GPUS(static_cast<int>(placement.devices.size()));
  const bool is_divided = placement.devices.size() > 1 || placement.replicas_per_device > 1;
  if (stage == 1 || !is_divided) return expect_the_training_of_one_device({.are_captured = true});
  EXPECT_THAT(message_of<InvalidArgument>([] { expect_the_training_of_one_device({.are_captured = true}); }),
              testing::HasSubstr("cannot be captured"));
}

}  // namespace
}  // namespace lockstep
