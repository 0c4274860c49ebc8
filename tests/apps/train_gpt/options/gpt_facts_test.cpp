#include "lockstep/apps/train_gpt/options/gpt_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "lockstep/apps/train_gpt/options/gpt_command_line.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

GptFacts facts_of(const GptTrainOptions& options, int num_replicas = 1) {
  const GptOptions model = model_to_train(options, base_model(options), 78);
  return {.options = options,
          .plan = make_gpt_plan(options, model, model.max_length, num_replicas),
          .model = "small",
          .data = "generated",
          .num_train = 1000,
          .num_test = 20,
          .num_replicas = num_replicas,
          .peak_flops = 5e10,
          .peak_source = "of a test"};
}

TEST(GptFactsTest, TellsTheModelTheBatchAndTheRate) {
  GptTrainOptions options;
  options.micro_batch_size = 8;
  auto facts = facts_of(options, 2);
  facts.entropy = 1.5;
  facts.best_loss = 1.51;
  facts.bigram_loss = 2.07;
  facts.five_gram_loss = 1.98;
  EXPECT_THAT(
      gpt_configuration_text(facts),
      AllOf(
          HasSubstr("small (llama), "), HasSubstr("2 layers of 128, 4 heads, 78 tokens"),
          HasSubstr("32 sequences of 128, 4\u202F096 tokens; 16 sequences a replica, each step in 2 pieces"),
          HasSubstr("0.003, falling to 0 along a cosine, after a warm-up of 50 steps"),
          HasSubstr("1.5000 nats a token, the lowest possible loss; 1.5100 on the texts to test on"),
          HasSubstr("bigram 2.0700, 5-gram 1.9800"), HasSubstr("50 GFLOP/s, of a test;")));
  EXPECT_THAT(gpt_configuration_text(facts_of(options)), Not(HasSubstr("entropy")));
}

TEST(GptFactsTest, HasAValueForEveryFlagThatIsWritten) {
  const auto settings = gpt_settings({}, {});
  for (const auto& flag : gpt_flags({"default"}).flags) {
    if (flag.role == FlagRole::kAction || flag.name == "list-devices") continue;
    const auto has_name = [&](const Setting& setting) { return setting.name == long_name(flag); };
    EXPECT_EQ(std::count_if(settings.begin(), settings.end(), has_name), 1) << flag.name;
  }
}

TEST(GptFactsTest, AConfigurationRepeatsTheRun) {
  const lockstep::testing::TemporaryFolder folder;
  const std::vector<std::string> strategies{"default"};
  const auto line = parse_gpt_command_line({"--data",
                                            "a.txt,b.txt",
                                            "--test-share",
                                            "0.25",
                                            "--tokenizer",
                                            "bytes",
                                            "--family",
                                            "gpt2",
                                            "--layers",
                                            "2",
                                            "--steps",
                                            "40",
                                            "--tokens-per-step",
                                            "256",
                                            "--learning-rate",
                                            "0.01",
                                            "--sample",
                                            "the monk",
                                            "--seed",
                                            "9"},
                                           strategies);
  const std::string path = folder.path() + "/config.json";
  std::ofstream(path) << gpt_configuration_json(facts_of(line.options), line.origins, "1.0");
  EXPECT_EQ(parse_gpt_command_line({"--config", path}, strategies).options, line.options);
}

TEST(GptFactsTest, AConfigurationRepeatsTheFactsButForOtherData) {
  const lockstep::testing::TemporaryFolder folder;
  const auto line = parse_gpt_command_line({"--fact-names", "8", "--fact-share", "0.9"}, {"default"});
  const std::string path = folder.path() + "/config.json";
  std::ofstream(path) << gpt_configuration_json(facts_of(line.options), line.origins, "1.0");
  EXPECT_EQ(parse_gpt_command_line({"--config", path}, {"default"}).options, line.options);
  const auto other = parse_gpt_command_line({"--config", path, "--data", "a.txt"}, {"default"}).options;
  EXPECT_EQ(other.fact_names, 0);
}

TEST(GptFactsTest, KeepsWhatTheLossIsComparedWith) {
  auto facts = facts_of({});
  facts.best_loss = 1.25;
  const auto resolved = nlohmann::json::parse(gpt_configuration_json(facts, {}, "1.0"))["resolved"];
  EXPECT_EQ(resolved["best-possible-test-loss"]["value"], 1.25);
  EXPECT_TRUE(resolved["bigram-test-loss"]["value"].is_null());
  EXPECT_EQ(resolved["tokens-per-step"]["value"], 4096);
}

}  // namespace
}  // namespace lockstep::apps
