// Modules and optimizers that work across replicas, on GPUs: SyncBatchNorm, GradScaler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/scaled_weight.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

struct Case {
  std::string name;
  int replicas = 1;
  std::vector<int64_t> shards;
};

class SyncBatchNormGpu : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shards, SyncBatchNormGpu,
                         testing::Values(Case{"One", 1, {7}}, Case{"Even", 2, {3, 3}},
                                         Case{"Uneven", 2, {5, 2}}, Case{"FirstEmpty", 2, {0, 4}},
                                         Case{"LastEmpty", 3, {2, 3, 0}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(SyncBatchNormGpu, EqualsLibTorchsBatchNormOfTheWholeBatch) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const Case& shards = GetParam();
  constexpr int64_t kChannels = 4;
  int64_t size = 0;
  for (const int64_t shard : shards.shards) size += shard;
  torch::manual_seed(3);
  const auto input = torch::randn({size, kChannels, 3, 2}, torch::kDouble) * 3 + 5;
  const auto gradient = torch::randn_like(input);

  torch::nn::BatchNorm2d alone(kChannels);
  alone->to(torch::kDouble);
  const auto whole = input.clone().requires_grad_();
  const auto expected = alone->forward(whole);
  expected.backward(gradient);

  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = shards.replicas});
  auto norm = strategy.scope([&](ReplicaContext&) {
    SyncBatchNorm module(kChannels);
    module->to(torch::kDouble);
    return module;
  });
  struct Result {
    torch::Tensor output, input_gradient;
  };
  const auto results = strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm& own) {
        int64_t begin = 0;
        for (int i = 0; i < replica.replica_id(); ++i) begin += shards.shards[static_cast<size_t>(i)];
        const int64_t count = shards.shards[static_cast<size_t>(replica.replica_id())];
        const auto x = input.narrow(0, begin, count).to(replica.device()).requires_grad_();
        const auto y = own->forward(x);
        y.backward(gradient.narrow(0, begin, count).to(replica.device()));
        return Result{y.detach(), x.grad()};
      },
      norm);
  std::vector<torch::Tensor> outputs, input_gradients;
  for (const auto& result : results.local_values()) {
    outputs.push_back(result.output.cpu());
    input_gradients.push_back(result.input_gradient.cpu());
  }
  EXPECT_LT(largest_difference({torch::cat(outputs), torch::cat(input_gradients)},
                               {expected.detach(), whole.grad()}),
            1e-12);
  torch::Tensor weight_gradient = torch::zeros({kChannels}, torch::kDouble);
  for (const auto& own : norm.local_values()) {
    EXPECT_LT(largest_difference({own->running_mean.cpu(), own->running_var.cpu()},
                                 {alone->running_mean, alone->running_var}),
              1e-12);
    EXPECT_EQ(own->num_batches_tracked.item<int64_t>(), 1);
    weight_gradient += own->weight.grad().cpu();
  }
  EXPECT_LT(largest_difference({weight_gradient}, {alone->weight.grad()}), 1e-12);
  expect_no_races();
}

// If the scale overflows on one replica only, all replicas skip the step, and nobody reads the device.
TEST(GradScalerGpu, SkipsOnEveryReplicaWithoutMakingTheHostWait) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  ScaledWeight scaled(strategy);
  scaled.step(-1);
  const auto before = scaled.weight.local_values()[0].cpu();
  EXPECT_FALSE(torch::equal(before, torch::ones({4})));
  {
    const HostMustNotWait guard;
    scaled.step(1);
  }
  for (const auto& own : scaled.weight.local_values()) EXPECT_TRUE(torch::equal(own.cpu(), before));
  for (const auto& scale : scaled.scaler.local_values()) EXPECT_EQ(scale.get_scale(), 2);
  expect_no_races();
}

}  // namespace
}  // namespace lockstep
