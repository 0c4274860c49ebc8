// Gpt on replicas: dropout draws from each replica's own random stream, whatever the threads' timing.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/models/gpt/small_gpts.h"

namespace lockstep {
namespace {

constexpr int kRuns = 5;

/// Lets replicas reach their random draws in another order in each run.
void pause_for(std::mt19937& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
}

/// The results of each replica after some steps, with seeds as in every other run.
std::vector<torch::Tensor> results_of_run(const GptOptions& options, unsigned timing) {
  torch::manual_seed(8);
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto model = strategy.scope([&](ReplicaContext&) { return Gpt(options); });
  const auto tokens = torch::randint(options.vocabulary_size, {4, 10}, torch::kLong);
  const auto step = [&](ReplicaContext& replica, Gpt& gpt) {
    std::mt19937 random(timing + static_cast<unsigned>(replica.replica_id()));
    torch::Tensor logits;
    for (int i = 0; i < 3; ++i) {
      pause_for(random);
      gpt->zero_grad();
      logits = gpt(tokens);
      pause_for(random);
      torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward();
    }
    return torch::cat({logits.detach().flatten(), gpt->parameters()[0].grad().flatten()});
  };
  return strategy.run(step, model).local_values();
}

void expect_repeatable(const GptOptions& options) {
  const auto first = results_of_run(options, 0);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_FALSE(torch::allclose(first[0], first[1], 1e-3, 1e-3)) << "replicas share their draws";
  for (unsigned run = 1; run < kRuns; ++run) {
    const auto again = results_of_run(options, 100 * run);
    for (size_t replica = 0; replica < 2; ++replica) EXPECT_TRUE(again[replica].equal(first[replica])) << run;
  }
}

TEST(GptReplicasTest, DropoutInAttentionIsRepeatableWhateverTheTiming) {
  for (auto options : {small_gpt2(), small_llama()}) {
    options.attention_dropout = 0.4;
    expect_repeatable(options);
  }
}

TEST(GptReplicasTest, OtherDropoutsAreRepeatableWhateverTheTiming) {
  GptOptions options = small_gpt2();
  options.embedding_dropout = 0.3;
  options.residual_dropout = 0.3;
  expect_repeatable(options);
}

TEST(GptReplicasTest, DropoutInLibTorchsAttentionOnCpusDrawsFromTheReplicasStream) {
  // gpus.md says so: only GPUs have fused kernels with dropout, which draw from the default generator.
  MirroredStrategy strategy({"cpu:0"});
  const auto heads = torch::randn({1, 2, 20, 8});
  const auto attend_twice = [&](ReplicaContext& replica) {
    const auto attended = [&](const auto& between) {
      replica.generator().set_current_seed(3);
      between();
      return at::scaled_dot_product_attention(heads, heads, heads, std::nullopt, /*dropout_p=*/0.5);
    };
    const auto first = attended([] {});
    EXPECT_TRUE(attended([] { torch::manual_seed(1); }).equal(first));
    EXPECT_FALSE(attended([&] { replica.generator().set_current_seed(4); }).equal(first));
  };
  strategy.run(attend_twice);
}

TEST(GptReplicasTest, ClonesOfOneModelAreMirrored) {
  torch::manual_seed(8);
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const Gpt model(small_llama());
  auto mirrored = strategy.mirror(model);
  const auto tokens = torch::randint(31, {2, 10}, torch::kLong);
  const auto expected = model->logits(model->features(tokens));
  for (auto& replica : mirrored.local_values()) EXPECT_TRUE(replica(tokens).equal(expected));
}

}  // namespace
}  // namespace lockstep
