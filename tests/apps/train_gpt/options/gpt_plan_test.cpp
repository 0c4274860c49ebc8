#include "lockstep/apps/train_gpt/options/gpt_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

GptOptions model_of(const GptTrainOptions& options, int64_t vocabulary_size = 78) {
  return model_to_train(options, base_model(options), vocabulary_size);
}

/// Writes the configuration of a model with an empty file of weights beside it.
void write_model(const TemporaryFolder& folder, const GptOptions& model) {
  std::ofstream(folder.path() + "/config.json") << gpt_configuration_text(model);
  std::ofstream(folder.path() + "/model.safetensors") << "";
}

GptOptions tiny_llama() {
  GptOptions model = gpt_preset("small");
  model.vocabulary_size = 300;
  return model;
}

TEST(GptPlanTest, TheSmallModelHasTheVocabularyOfTheDataAndAsManyPositionsAsTokens) {
  const GptOptions model = model_of({}, 1234);
  EXPECT_EQ(model.vocabulary_size, 1234);
  EXPECT_EQ(model.max_length, 128);
  GptTrainOptions longer;
  longer.sequence_length = 512;
  EXPECT_EQ(model_of(longer).max_length, 512);
}

TEST(GptPlanTest, APublishedModelKeepsItsVocabularyAndPositions) {
  GptTrainOptions options;
  options.model = "gpt2";
  const GptOptions model = model_of(options);
  EXPECT_EQ(num_gpt_parameters(model), 124'439'808);
  EXPECT_EQ(sequence_length_of(options, base_model(options)), 1024);
  options.sequence_length = 1025;
  EXPECT_THAT(
      [&] { sequence_length_of(options, base_model(options)); },
      ThrowsMessage<UsageError>("--sequence-length 1025: expected at most 1024, the positions of gpt2"));
}

TEST(GptPlanTest, TheModelOverBytesTakesTheVocabularyOfTheTokenizer) {
  GptTrainOptions options;
  options.model = "bytes";
  EXPECT_EQ(model_of(options, 257).vocabulary_size, 257);
  EXPECT_EQ(sequence_length_of(options, base_model(options)), 256);
}

TEST(GptPlanTest, SizesReplaceThoseOfTheModel) {
  GptTrainOptions options;
  options.layers = 3;
  options.hidden = 96;
  options.heads = 6;
  options.kv_heads = 2;
  const GptOptions model = model_of(options);
  EXPECT_EQ(model.num_layers, 3);
  EXPECT_EQ(model.width, 96);
  EXPECT_EQ(model.num_heads, 6);
  EXPECT_EQ(model.num_key_value_heads, 2);
  EXPECT_EQ(model.head_width, 16);
  EXPECT_EQ(model.hidden_width, 256);  // 8/3 of 96
  options.mlp_hidden = 50;
  EXPECT_EQ(model_of(options).hidden_width, 50);
}

TEST(GptPlanTest, AFamilyCanBeAskedFor) {
  GptTrainOptions options;
  options.family = GptFamily::kGpt2;
  const GptOptions model = model_of(options);
  EXPECT_EQ(gpt_family(model), GptFamily::kGpt2);
  EXPECT_EQ(model.hidden_width, 4 * model.width);
  options.family = GptFamily::kLlama;
  EXPECT_EQ(gpt_family(model_of(options)), GptFamily::kLlama);
}

TEST(GptPlanTest, SizesThatDoNotFitAreNamedByTheirFlags) {
  GptTrainOptions options;
  options.heads = 3;
  EXPECT_THAT([&] { model_of(options); },
              ThrowsMessage<UsageError>("--heads 3: expected a divisor of the 128 of --hidden"));
  options.heads = 4;
  options.kv_heads = 3;
  EXPECT_THAT([&] { model_of(options); },
              ThrowsMessage<UsageError>("--kv-heads 3: expected a divisor of the 4 of --heads"));
}

TEST(GptPlanTest, ATokenizerWithMoreTokensThanThePublishedModelIsRefused) {
  GptTrainOptions options;
  options.model = "gpt2";
  options.tokenizer = "llama3";
  EXPECT_THAT([&] { model_of(options, 128'256); },
              ThrowsMessage<UsageError>(
                  "--tokenizer llama3: expected at most 50257 tokens, as gpt2 has, but got 128256"));
}

TEST(GptPlanTest, WeightsWithAConfigurationDecideTheModel) {
  const TemporaryFolder folder;
  write_model(folder, tiny_llama());
  GptTrainOptions options;
  options.init_weights = folder.path();
  const BaseModel base = base_model(options);
  EXPECT_EQ(base.options.num_layers, 2);
  EXPECT_EQ(model_to_train(options, base, 257).vocabulary_size, 300);
  options.layers = 2;  // the same
  EXPECT_NO_THROW(base_model(options));
  options.layers = 5;
  EXPECT_THAT([&] { base_model(options); },
              ThrowsMessage<UsageError>("--layers 5: expected the 2 of " + folder.path() +
                                        "/config.json, whose weights are loaded"));
  options.layers = 0;
  options.model = "gpt2";
  EXPECT_THAT([&] { base_model(options); },
              ThrowsMessage<UsageError>(HasSubstr("--model gpt2: expected a model")));
}

TEST(GptPlanTest, AConfigurationOfAnotherKindOfModelIsNamed) {
  const TemporaryFolder folder;
  write_model(folder, tiny_llama());
  std::ofstream(folder.path() + "/config.json") << R"({"model_type": "bert"})";
  GptTrainOptions options;
  options.init_weights = folder.path();
  EXPECT_THAT([&] { base_model(options); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr(folder.path()), HasSubstr("bert"))));
}

TEST(GptPlanTest, TokensOfAStepBecomeSequencesAndMicroBatches) {
  GptTrainOptions options;
  options.tokens_per_step = 128 * 20;
  options.micro_batch_size = 3;
  const GptOptions model = model_of(options);
  const auto alone = make_gpt_plan(options, model, 128, 1);
  EXPECT_EQ(alone.global_batch_size, 20);
  EXPECT_EQ(alone.tokens_per_step(), 2560);
  EXPECT_EQ(alone.micro_batches, 7);                                  // six of three and one of two
  EXPECT_EQ(make_gpt_plan(options, model, 128, 3).micro_batches, 3);  // of up to seven sequences
  EXPECT_DOUBLE_EQ(alone.flops_per_token, gpt_training_flops(model, 128));
  options.tokens_per_step = 1000;
  EXPECT_THAT(
      [&] { make_gpt_plan(options, model, 128, 1); },
      ThrowsMessage<UsageError>("--tokens-per-step 1000: expected a multiple of the sequence length 128"));
}

TEST(GptPlanTest, TheLastEpochHasTheStepsThatAreLeft) {
  GptTrainOptions options;
  options.steps = 25;
  options.test_every = 10;
  const auto plan = make_gpt_plan(options, model_of(options), 128, 1);
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(steps_of_epoch(options, plan, {.epoch = 1, .steps_done = 0}), 10);
  EXPECT_EQ(steps_of_epoch(options, plan, {.epoch = 2, .steps_done = 10}), 10);
  EXPECT_EQ(steps_of_epoch(options, plan, {.epoch = 3, .steps_done = 20}), 5);
  // Raised to 40 when three epochs were done.
  options.steps = 40;
  EXPECT_EQ(steps_of_epoch(options, make_gpt_plan(options, model_of(options), 128, 1),
                           {.epoch = 4, .steps_done = 25}),
            15);
}

TEST(GptPlanTest, TheLearningRateRisesAndFallsAlongHalfACosine) {
  GptTrainOptions options;
  options.steps = 110;
  options.warmup_steps = 10;
  options.learning_rate = 1;
  options.final_learning_rate = 0.1;
  const auto plan = make_gpt_plan(options, model_of(options), 128, 1);
  const auto share = [&](int64_t step) { return learning_rate_share(options, plan, step); };
  EXPECT_DOUBLE_EQ(share(0), 0.1);
  EXPECT_DOUBLE_EQ(share(9), 1);
  EXPECT_DOUBLE_EQ(share(10), 1);
  EXPECT_DOUBLE_EQ(share(60), 0.55);  // halfway
  EXPECT_NEAR(share(85), 0.1 + 0.9 * 0.5 * (1 + std::cos(3.14159265358979 * 0.75)), 1e-12);
  EXPECT_DOUBLE_EQ(share(110), 0.1);
  options.schedule = GptSchedule::kConstant;
  EXPECT_DOUBLE_EQ(share(4), 0.5);
  EXPECT_DOUBLE_EQ(share(100), 1);
}

TEST(GptPlanTest, TheWarmUpIsATenthOfTheSteps) {
  GptTrainOptions options;
  options.steps = 50;
  EXPECT_EQ(make_gpt_plan(options, model_of(options), 128, 1).warmup_steps, 5);
  options.steps = 100'000;
  EXPECT_EQ(make_gpt_plan(options, model_of(options), 128, 1).warmup_steps, 500);
  options.warmup_steps = 0;
  EXPECT_EQ(make_gpt_plan(options, model_of(options), 128, 1).warmup_steps, 0);
}

}  // namespace
}  // namespace lockstep::apps
