#include "lockstep/apps/train_gpt/training/gpt_step.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::apps {
namespace {

GptOptions tiny_gpt() {
  return {.vocabulary_size = 11, .max_length = 6, .num_layers = 2, .num_heads = 2, .width = 8};
}

GptTrainOptions in_precision(PrecisionKind precision) {
  GptTrainOptions options;
  options.precision = precision;
  return options;
}

Example tiny_batch() {
  return {torch::randint(11, {3, 6}, torch::kLong), torch::randint(11, {3, 6}, torch::kLong)};
}

TEST(GptStep, LossesAreMeanLogarithmsOfProbabilitiesOfEachSequence) {
  torch::manual_seed(1);
  Gpt model = make_gpt(in_precision(PrecisionKind::kFloat64), tiny_gpt());
  const Example batch = tiny_batch();
  const auto losses = sequence_losses(model, batch);
  ASSERT_EQ(losses.sizes(), (std::vector<int64_t>{3}));
  const auto probabilities = torch::softmax(model->forward(batch.data), -1);
  for (int64_t sequence = 0; sequence < 3; ++sequence) {
    double sum = 0;
    for (int64_t i = 0; i < 6; ++i) {
      const auto target = batch.target[sequence][i].item<int64_t>();
      sum -= std::log(probabilities[sequence][i][target].item<double>());
    }
    EXPECT_NEAR(losses[sequence].item<double>(), sum / 6, 1e-12);
  }
}

TEST(GptStep, RoutersAreTrainedByLossesThatAreNotReported) {
  torch::manual_seed(1);
  GptTrainOptions options = in_precision(PrecisionKind::kFloat64);
  options.balance_loss = 0.5;
  options.router_z_loss = 0.25;
  GptOptions with_experts = tiny_gpt();
  with_experts.num_experts = 4;
  Gpt model = make_gpt(options, with_experts);
  const Example batch = tiny_batch();
  const auto gradients_of = [&](const torch::Tensor& losses) {
    model->zero_grad();
    losses.sum().backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
    return gradients;
  };
  const auto trained = trained_losses(options, model, batch);
  EXPECT_LE((trained - sequence_losses(model, batch)).abs().max().item<double>(), 1e-12);
  const auto actual = gradients_of(trained);
  const auto all = model->losses_with_routing(batch.data, batch.target);
  const auto expected = gradients_of(all.losses.mean(1) + 0.5 * all.balance_losses + 0.25 * all.z_losses);
  const auto without = gradients_of(sequence_losses(model, batch));
  bool differ = false;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 0, 1e-12));
    differ = differ || !torch::allclose(actual[i], without[i], 0, 1e-6);
  }
  EXPECT_TRUE(differ);
  model->eval();
  EXPECT_TRUE(torch::equal(trained_losses(options, model, batch), sequence_losses(model, batch)));
}

TEST(GptStep, StagesAreCutByOperationsOrByTimesThatAllRanksKnow) {
  GptPlan plan{.model = tiny_gpt(), .sequence_length = 6, .global_batch_size = 8, .micro_batches = 2};
  plan.model.vocabulary_size = 2048;  // so that its head takes most of the time
  GptTrainOptions options;
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = {{"pipeline", 2}}});
  const auto operations = gpt_stage_costs(options, plan, strategy);
  EXPECT_EQ(operations, gpt_block_flops(plan.model, 6));
  options.pipeline_cut = "time";
  const auto seconds = gpt_stage_costs(options, plan, strategy);
  ASSERT_EQ(seconds.size(), operations.size());
  for (const double of_block : seconds) EXPECT_GT(of_block, 0);
  MirroredStrategy without(cpu_devices(2), {.intra_op_threads = 1});
  EXPECT_TRUE(gpt_stage_costs(options, plan, without).empty());
}

TEST(GptStep, CostsMoveTheCut) {
  GptPlan plan{.model = tiny_gpt(), .sequence_length = 6, .global_batch_size = 8, .micro_batches = 2};
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = {{"pipeline", 2}}});
  const auto elements_of_ranks = [&] {
    const auto model = strategy.scope(
        [&](ReplicaContext& replica) { return make_gpt(GptTrainOptions(), plan, strategy, replica); });
    std::vector<int64_t> elements;
    for (const auto& own : model.local_values()) {
      elements.push_back(0);
      for (const auto& item : own->named_parameters())
        if (item.key().starts_with("blocks.")) elements.back() += item.value().numel();
    }
    return elements;
  };
  plan.stage_costs = {0, 1, 1, 2};  // the head alone
  auto elements = elements_of_ranks();
  EXPECT_GT(elements[0], 0);
  EXPECT_EQ(elements[1], 0);
  plan.stage_costs = {2, 1, 1, 0};
  elements = elements_of_ranks();
  EXPECT_EQ(elements[0], 0);
  EXPECT_GT(elements[1], 0);
}

TEST(GptStep, ModelsHaveTheDtypeOfTheirPrecision) {
  EXPECT_EQ(make_gpt(GptTrainOptions(), tiny_gpt())->parameters().front().scalar_type(), torch::kFloat);
  EXPECT_EQ(make_gpt(in_precision(PrecisionKind::kFloat64), tiny_gpt())->parameters().front().scalar_type(),
            torch::kDouble);
}

TEST(GptStep, RecomputedBlocksHaveTheSameGradients) {
  const auto gradients_with = [](GptRecompute recompute) {
    torch::manual_seed(2);
    GptTrainOptions options;
    options.recompute = recompute;
    Gpt model = make_gpt(options, tiny_gpt());
    sequence_losses(model, tiny_batch()).mean().backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  const auto kept = gradients_with(GptRecompute::kNothing), again = gradients_with(GptRecompute::kEveryBlock);
  ASSERT_EQ(kept.size(), again.size());
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(kept[i], again[i])) << i;
}

TEST(GptStep, FilesAreShuffledAndDrawnTextsAreNot) {
  const GptPlan plan{.global_batch_size = 12};
  GptTrainOptions options;
  options.seed = 7;
  options.shuffle_window = 5;
  const auto drawn = gpt_batches(options, plan);
  EXPECT_EQ(drawn.global_batch_size, 12);
  EXPECT_EQ(drawn.shuffle_seed, std::nullopt);
  options.data = {"a.bin"};
  const auto read = gpt_batches(options, plan);
  EXPECT_EQ(read.shuffle_seed, 7U);
  EXPECT_EQ(read.shuffle_window, 5);
}

}  // namespace
}  // namespace lockstep::apps
