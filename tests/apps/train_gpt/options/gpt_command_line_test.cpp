#include "lockstep/apps/train_gpt/options/gpt_command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Words = std::vector<std::string>;

const Words kGptStrategies{"default", "mirrored", "multi_worker", "one_device"};

GptTrainOptions gpt_options(const Words& arguments) {
  return parse_gpt_command_line(arguments, kGptStrategies).options;
}

void expect_gpt_refusal(const Words& arguments, const std::string& message) {
  EXPECT_THAT([&] { gpt_options(arguments); }, ThrowsMessage<UsageError>(HasSubstr(message)));
}

TEST(GptCommandLine, HasTheDefaultsWithoutArguments) {
  const auto line = parse_gpt_command_line({}, kGptStrategies);
  EXPECT_EQ(line.action, Action::kTrain);
  EXPECT_EQ(line.options, GptTrainOptions());
  EXPECT_TRUE(line.origins.empty());
}

TEST(GptCommandLine, ReadsEveryGroupOfFlags) {
  const auto options = gpt_options({"--data",
                                    "a.txt,b.jsonl",
                                    "--test-data",
                                    "c.txt",
                                    "--limit-test",
                                    "9",
                                    "--tokenizer",
                                    "t",
                                    "--token-format",
                                    "llm.c",
                                    "--json-field",
                                    "body",
                                    "--parquet-column",
                                    "ids",
                                    "--parquet-memory",
                                    "2GiB",
                                    "--token-cache",
                                    "k",
                                    "--shuffle-window",
                                    "77",
                                    "--model",
                                    "gpt2",
                                    "--family",
                                    "llama",
                                    "--layers",
                                    "3",
                                    "--hidden",
                                    "48",
                                    "--heads",
                                    "6",
                                    "--kv-heads",
                                    "2",
                                    "--mlp-hidden",
                                    "100",
                                    "--sequence-length",
                                    "64",
                                    "--dropout",
                                    "0.1",
                                    "--init-weights",
                                    "w",
                                    "--steps",
                                    "70",
                                    "--test-every",
                                    "30",
                                    "--tokens-per-step",
                                    "512",
                                    "--recompute",
                                    "every_block",
                                    "--micro-batch-size",
                                    "2",
                                    "--early-stopping",
                                    "4",
                                    "--precision",
                                    "bfloat16",
                                    "--learning-rate",
                                    "0.01",
                                    "--final-learning-rate",
                                    "0.001",
                                    "--warmup-steps",
                                    "7",
                                    "--weight-decay",
                                    "0.2",
                                    "--beta2",
                                    "0.99",
                                    "--clip-norm",
                                    "0",
                                    "--seed",
                                    "5",
                                    "--sample",
                                    "once",
                                    "--sample-tokens",
                                    "12",
                                    "--temperature",
                                    "0",
                                    "--top-k",
                                    "3",
                                    "--top-p",
                                    "0.9"});
  GptTrainOptions expected;
  expected.data = {"a.txt", "b.jsonl"};
  expected.test_data = {"c.txt"};
  expected.limit_test = 9;
  expected.tokenizer = "t";
  expected.token_format = TokenFormat::kLlmC;
  expected.json_field = "body";
  expected.parquet_column = "ids";
  expected.parquet_memory = "2GiB";
  expected.token_cache = "k";
  expected.shuffle_window = 77;
  expected.model = "gpt2";
  expected.family = GptFamily::kLlama;
  expected.layers = 3;
  expected.hidden = 48;
  expected.heads = 6;
  expected.kv_heads = 2;
  expected.mlp_hidden = 100;
  expected.sequence_length = 64;
  expected.dropout = 0.1;
  expected.init_weights = "w";
  expected.steps = 70;
  expected.test_every = 30;
  expected.tokens_per_step = 512;
  expected.micro_batch_size = 2;
  expected.recompute = GptRecompute::kEveryBlock;
  expected.early_stopping = 4;
  expected.precision = PrecisionKind::kBFloat16;
  expected.learning_rate = 0.01;
  expected.final_learning_rate = 0.001;
  expected.warmup_steps = 7;
  expected.weight_decay = 0.2;
  expected.beta2 = 0.99;
  expected.clip_norm = 0;
  expected.seed = 5;
  expected.sample = "once";
  expected.sample_tokens = 12;
  expected.temperature = 0;
  expected.top_k = 3;
  expected.top_p = 0.9;
  EXPECT_EQ(options, expected);
}

TEST(GptCommandLine, ReadsTheFactsOfTheGeneratedLanguage) {
  const auto options = gpt_options({"--fact-names", "64", "--fact-share", "1"});
  EXPECT_EQ(language_of(options).num_names, 64);
  EXPECT_EQ(language_of(options).fact_share, 1);
  EXPECT_EQ(language_of({}).num_names, 0);
  expect_gpt_refusal({"--fact-names", "129"}, "--fact-names");
  expect_gpt_refusal({"--fact-share", "0.5"}, "--fact-share 0.5: expected it with --fact-names only");
  expect_gpt_refusal({"--fact-names", "4", "--fact-share", "1.5"},
                     "--fact-share: expected a number above 0, at most 1, but got '1.5'");
  expect_gpt_refusal({"--data", "a.txt", "--fact-names", "4"},
                     "--fact-names 4: expected it with --data generated only");
}

TEST(GptCommandLine, TestsNoSeldomerThanAtTheEnd) {
  EXPECT_EQ(gpt_options({"--steps", "50"}).test_every, 50);
  EXPECT_EQ(gpt_options({"--steps", "5000"}).test_every, GptTrainOptions().test_every);
}

TEST(GptCommandLine, RefusesFlagsThatDoNotGoTogether) {
  expect_gpt_refusal({"--global-batch-size", "4", "--tokens-per-step", "512"}, "--tokens-per-step");
  expect_gpt_refusal({"--data", "a", "--test-data", "b", "--test-share", "0.2"}, "--test-share");
  expect_gpt_refusal({"--tokenizer", "bytes"},
                     "--tokenizer bytes: expected it with files as --data only, but got --data generated");
  expect_gpt_refusal({"--learning-rate-schedule", "constant", "--final-learning-rate", "0.001"},
                     "--final-learning-rate 0.001: expected it with --learning-rate-schedule cosine only");
  expect_gpt_refusal({"--learning-rate", "0.001", "--final-learning-rate", "0.01"},
                     "--final-learning-rate 0.01: expected at most the 0.001 of --learning-rate");
  expect_gpt_refusal({"--steps", "5", "--warmup-steps", "6"},
                     "--warmup-steps 6: expected at most the 5 of --steps");
}

TEST(GptCommandLine, RefusesValuesOutOfRange) {
  expect_gpt_refusal({"--top-p", "1.5"}, "--top-p: expected a number above 0, at most 1, but got '1.5'");
  expect_gpt_refusal({"--dropout", "1"}, "--dropout");
  expect_gpt_refusal({"--steps", "0"}, "--steps");
  expect_gpt_refusal({"--data", ""}, "--data: expected generated, or files and folders, but got ''");
  expect_gpt_refusal({"--data", "a,,b"}, "--data: expected generated, or files and folders, but got 'a,,b'");
  expect_gpt_refusal({"--model", "gpt-2"}, "did you mean gpt2?");
}

TEST(GptCommandLine, HelpListsEveryFlagWithItsDefault) {
  const std::string help = gpt_help_text(kGptStrategies);
  for (const auto& spelling : flag_spellings(gpt_flags(kGptStrategies)))
    EXPECT_THAT(help, HasSubstr(spelling));
  EXPECT_THAT(help, HasSubstr("(default: 0.003)"));
  EXPECT_EQ(parse_gpt_command_line({"--help"}, kGptStrategies).action, Action::kHelp);
  EXPECT_EQ(parse_gpt_command_line({"--version"}, kGptStrategies).action, Action::kVersion);
}

TEST(GptCommandLine, AFastDevelopmentRunIsShortAndLeavesNothingBehind) {
  const auto options = gpt_options({"--fast-dev-run", "--backup-dir", "b", "--mlflow-dir", "m"});
  EXPECT_EQ(options.steps, 5);
  EXPECT_EQ(options.test_every, 5);
  EXPECT_EQ(options.log_every, 1);
  EXPECT_EQ(options.check_replicas, 1);
  EXPECT_EQ(options.backup_dir, "");
  EXPECT_EQ(options.mlflow_dir, "");
}

}  // namespace
}  // namespace lockstep::apps
