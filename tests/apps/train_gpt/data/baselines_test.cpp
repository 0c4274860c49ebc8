#include "lockstep/apps/train_gpt/data/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

GptData open_baseline_data(const GptTrainOptions& options) {
  return open_gpt_data(options, base_model(options), {});
}

TEST(BaselinesTest, OfTheGeneratedLanguageAreInTheirOrder) {
  GptTrainOptions options;
  options.limit_test = 64;
  const auto baselines = measure_baselines(open_baseline_data(options), 2'000'000);
  ASSERT_TRUE(baselines.entropy && baselines.best && baselines.bigram && baselines.five_gram);
  EXPECT_DOUBLE_EQ(*baselines.entropy, GeneratedLanguage().entropy(128));
  // 8,192 tokens, whose log probabilities have a standard deviation of about 1.5.
  EXPECT_NEAR(*baselines.best, *baselines.entropy, 5 * 1.5 / std::sqrt(8192.0));
  EXPECT_LT(*baselines.best, *baselines.five_gram);
  EXPECT_LT(*baselines.five_gram, *baselines.bigram);
}

TEST(BaselinesTest, TheBestLossIsThatOfTheLanguagesOwnProbabilities) {
  GptTrainOptions options;
  options.limit_test = 2;
  options.sequence_length = 16;
  const GptData data = open_baseline_data(options);
  const GeneratedLanguage language;
  double loss = 0;
  for (uint64_t index = 0; index < 2; ++index) {
    std::vector<uint32_t> tokens(17);
    language.draw({.seed = 1, .index = index}, tokens);
    for (const double log : language.log_probabilities(tokens)) loss -= log / 32;
  }
  EXPECT_NEAR(*measure_baselines(data, 1000).best, loss, 1e-12);
}

// A fact leaves its two names open; a 5-gram model looks the town up in its table.
TEST(BaselinesTest, OfFactsAreThoseOfTheirNames) {
  GptTrainOptions options;
  options.fact_names = 16;
  options.fact_share = 1;
  const auto baselines = measure_baselines(open_baseline_data(options), 1'000'000);
  constexpr double kEnd = 0.15;  // of the text, after a sentence
  const double of_sentence = 2 * std::log(16.0) - kEnd * std::log(kEnd) - (1 - kEnd) * std::log(1 - kEnd);
  // Texts begin with a name and not with a choice, and sentences have four words, with an end 0.15 more.
  EXPECT_NEAR(*baselines.entropy, of_sentence / (4 + kEnd), 0.02);
  EXPECT_NEAR(*baselines.best, *baselines.entropy, 0.02);
  EXPECT_NEAR(*baselines.five_gram, *baselines.entropy, 0.05);
  EXPECT_GT(*baselines.bigram, *baselines.entropy + 0.4);
}

TEST(BaselinesTest, ATextThatRepeatsItselfIsEasyForBothAndHasNoKnownEntropy) {
  const lockstep::testing::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abc";
  GptTrainOptions options;
  options.data = {folder.write("a.txt", text)};
  options.sequence_length = 20;
  const auto baselines = measure_baselines(open_baseline_data(options), 1'000'000);
  EXPECT_EQ(baselines.entropy, std::nullopt);
  EXPECT_EQ(baselines.best, std::nullopt);
  EXPECT_LT(*baselines.bigram, 0.05);
  EXPECT_EQ(reference_losses(baselines).size(), 2U);
}

}  // namespace
}  // namespace lockstep::apps
