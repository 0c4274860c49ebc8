// A Gpt whose blocks are recomputed in backward.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <memory>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/models/gpt/small_gpts.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

const GptBlockRunner kRecomputes = [](const auto& block, const auto& x) { return recompute(block, x); };

/// The loss and the gradients of all parameters after a step with dropout everywhere.
std::vector<torch::Tensor> step_of(GptOptions options, const GptBlockRunner& runner, bool casts = false) {
  options.embedding_dropout = 0.2;
  options.attention_dropout = 0.3;
  options.residual_dropout = 0.4;
  torch::manual_seed(6);
  Gpt model(options);
  if (!casts) model->to(torch::kDouble);
  spread_parameters(model);
  model->set_block_runner(runner);
  const auto tokens = torch::randint(options.vocabulary_size, {3, 9}, torch::kLong);
  torch::Tensor loss;
  {
    const AutocastGuard cast(torch::kCPU, casts ? torch::kBFloat16 : torch::kFloat);
    loss = torch::nn::functional::cross_entropy(model(tokens).flatten(0, 1), tokens.flatten());
  }
  loss.backward();
  std::vector<torch::Tensor> results{loss.detach(), torch::rand({1}, torch::kDouble)};
  for (const auto& parameter : model->parameters()) results.push_back(parameter.grad());
  return results;
}

class GptRecomputeTest : public testing::TestWithParam<NamedGpt> {};

TEST_P(GptRecomputeTest, GivesLossAndGradientsOfPlainExecution) {
  const auto& options = GetParam().options;
  EXPECT_LE(largest_difference(step_of(options, kRecomputes), step_of(options, {})), 1e-12);
}

TEST_P(GptRecomputeTest, GivesLossAndGradientsOfPlainExecutionInBfloat16) {
  const auto& options = GetParam().options;
  EXPECT_TRUE(bit_equal(step_of(options, kRecomputes, true), step_of(options, {}, true)));
}

INSTANTIATE_TEST_SUITE_P(Families, GptRecomputeTest, testing::ValuesIn(small_gpts()), name_of);

TEST(GptBlockRunnerTest, ClonesTakeItOverAndGenerationDoesWithoutIt) {
  GptOptions options = small_gpt2();
  Gpt model(options);
  int calls = 0;
  model->set_block_runner([&calls](const auto& block, const auto& x) {
    ++calls;
    return block(x);
  });
  const auto tokens = torch::zeros({1, 4}, torch::kLong);
  std::dynamic_pointer_cast<GptImpl>(model->clone())->forward(tokens);
  EXPECT_EQ(calls, options.num_layers);
  GptCache cache(model->options(), {.batch_size = 1});
  model->next_logits(tokens, cache);
  EXPECT_EQ(calls, options.num_layers);
}

TEST(GptRecomputeMemoryTest, KeepsTheInputsOfBlocksAndNeedsOneBlockMore) {
  constexpr int64_t kBatch = 8;
  constexpr int64_t kLength = 64;
  GptOptions options{
      .vocabulary_size = 50, .max_length = kLength, .num_layers = 6, .num_heads = 4, .width = 64};
  const int64_t input_bytes = kBatch * kLength * options.width * 4;
  const auto tokens = torch::randint(options.vocabulary_size, {kBatch, kLength}, torch::kLong);
  struct Usage {
    int64_t after_forward;
    int64_t peak;
  };
  const auto usage_of = [&](int64_t num_layers, const GptBlockRunner& runner) {
    options.num_layers = num_layers;
    Gpt model(options);
    model->set_block_runner(runner);
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
    const CountedMemory memory;
    const auto features = model->features(tokens);
    Usage usage{.after_forward = memory.now()};
    features.sum().backward();
    usage.peak = memory.peak();
    return usage;
  };
  const Usage one = usage_of(1, {});
  const Usage plain = usage_of(6, {});
  const Usage recomputed = usage_of(6, kRecomputes);
  const int64_t block = (plain.after_forward - one.after_forward) / 5;
  // The embeddings' sum is the first block's input. The last norm keeps its input, the result of the last
  // block, and gives as much; its statistics are small.
  const int64_t small = input_bytes / 8;
  EXPECT_LE(recomputed.after_forward, 6 * input_bytes + 2 * input_bytes + small);
  EXPECT_LE(recomputed.peak, 5 * input_bytes + one.peak + small);
  EXPECT_GE(plain.peak, recomputed.peak + 4 * (block - input_bytes));
  EXPECT_GE(block, 8 * input_bytes);
}

}  // namespace
}  // namespace lockstep
