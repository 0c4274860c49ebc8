#include "lockstep/apps/train_gpt/training/gpt_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/training/train_gpt.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep::apps {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

GptTrainOptions tiny_training() {
  GptTrainOptions options;
  options.layers = 1;
  options.hidden = 16;
  options.heads = 2;
  options.sequence_length = 24;
  options.global_batch_size = 4;
  options.steps = 4;
  options.test_every = 2;
  options.limit_test = 4;
  options.sample_tokens = 12;
  return options;
}

struct Outcome {
  History history;
  std::vector<SampleText> samples;
};

Outcome train_tiny(const GptTrainOptions& options) {
  torch::manual_seed(1);
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const BaseModel base = base_model(options);
  const GptData data = open_gpt_data(options, base, {});
  const GptPlan plan = make_gpt_plan(options, model_to_train(options, base, data.vocabulary_size), 24, 2);
  Outcome outcome;
  outcome.history =
      train_gpt({.strategy = strategy,
                 .options = options,
                 .plan = plan,
                 .data = data,
                 .callbacks = gpt_step_callbacks(options, plan),
                 .on_start = [](torch::nn::Module&, const LoadReport*) {},
                 .on_sample = [&](const SampleText& sample) { outcome.samples.push_back(sample); }});
  return outcome;
}

TEST(GptSamplesTest, AreWrittenAfterEachTest) {
  const auto samples = train_tiny(tiny_training()).samples;
  ASSERT_EQ(samples.size(), 6U);
  EXPECT_EQ(samples[0].title, "after step 2");
  EXPECT_EQ(samples[5].title, "after step 4");
  EXPECT_THAT(samples, Each(Field(&SampleText::prompt, "")));
}

TEST(GptSamplesTest, ContinueTheirPromptAsOneText) {
  const GeneratedLanguage language;
  const TextCodec codec(language);
  std::vector<uint32_t> drawn(30);
  language.draw({.seed = 3, .index = 1}, drawn);
  const std::vector<int64_t> tokens(drawn.begin(), drawn.end());
  for (int64_t prompt_size = 1; prompt_size < 30; ++prompt_size) {
    const std::vector<int64_t> prompt(tokens.begin(), tokens.begin() + prompt_size);
    const std::vector<int64_t> rest(tokens.begin() + prompt_size, tokens.end());
    EXPECT_EQ(codec.text(prompt) + continued_text(codec, prompt, rest), codec.text(tokens)) << prompt_size;
  }
}

TEST(GptSamplesTest, DoNotChangeTheTraining) {
  auto options = tiny_training();
  options.dropout = 0.1;
  const auto with_samples = train_tiny(options);
  options.sample_tokens = 0;
  const auto without = train_tiny(options);
  EXPECT_TRUE(without.samples.empty());
  ASSERT_EQ(with_samples.history.epochs.size(), 2U);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(with_samples.history.epochs[i].at("loss"), without.history.epochs[i].at("loss"));
}

TEST(GptSamplesTest, APromptLongerThanTheModelsPositionsIsRefused) {
  auto options = tiny_training();
  std::string prompt = "the monk";
  for (int i = 0; i < 30; ++i) prompt += " the monk";
  options.sample = prompt;
  EXPECT_THAT([&] { train_tiny(options); },
              ThrowsMessage<UsageError>(HasSubstr("--sample: expected a text of at most 23 tokens")));
}

}  // namespace
}  // namespace lockstep::apps
