#include "lockstep/apps/train_gpt/training/gpt_logs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::apps {
namespace {

TEST(GptLogsTest, AddTheNumbersOfALanguageModel) {
  DefaultStrategy strategy;
  Trainer<TanhNet> trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const Example data = examples_of_three_classes();
  const detail::TensorPairs pairs(data.data, data.target);
  const GptScale scale{.sequence_length = 100, .flops_per_token = 1e6, .peak_flops = 1e12, .best_loss = 0.25};
  const auto history =
      trainer.fit(pairs, {.epochs = 1,
                          .validation = strategy.distribute_dataset(pairs, {.global_batch_size = 7}),
                          .callbacks = {std::make_shared<GptLogs>(scale)}});
  const Logs& logs = history.epochs.front();
  EXPECT_DOUBLE_EQ(logs.at("perplexity"), std::exp(logs.at("loss")));
  EXPECT_DOUBLE_EQ(logs.at("validation_perplexity"), std::exp(logs.at("validation_loss")));
  EXPECT_DOUBLE_EQ(logs.at("above_entropy"), logs.at("validation_loss") - 0.25);
  EXPECT_DOUBLE_EQ(logs.at("tokens_per_second"), 100 * logs.at("examples_per_second"));
  EXPECT_DOUBLE_EQ(logs.at("model_flop_utilization"), logs.at("tokens_per_second") * 1e6 / 1e12);
}

TEST(GptLogsTest, SayNothingAboutAnEntropyThatIsNotKnown) {
  const GptScale scale{.sequence_length = 100, .flops_per_token = 1e6, .peak_flops = 1e12};
  EXPECT_EQ(scale.best_loss, std::nullopt);
  EXPECT_DOUBLE_EQ(scale.utilization(1000), 0.1);
}

}  // namespace
}  // namespace lockstep::apps
