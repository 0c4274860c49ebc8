// Comparisons of language models by the built compare_strategies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/tests/apps/compare_strategies/compare_program.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using CompareLanguageModels = CompareStrategiesProgram;

/// A language model of 3,000 parameters. A step of 10 sequences cannot be shared evenly among 3 replicas.
const std::vector<std::string> kTinyLanguageModel{"--model",
                                                  "small",
                                                  "--layers",
                                                  "2",
                                                  "--hidden",
                                                  "16",
                                                  "--heads",
                                                  "2",
                                                  "--sequence-length",
                                                  "24",
                                                  "--global-batch-size",
                                                  "10",
                                                  "--steps",
                                                  "5",
                                                  "--warmup-steps",
                                                  "1",
                                                  "--rounds",
                                                  "1"};

std::vector<std::string> tiny_language_model(const std::string& strategies,
                                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"--strategies", strategies};
  arguments.insert(arguments.end(), kTinyLanguageModel.begin(), kTinyLanguageModel.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(CompareLanguageModels, TrainsTheSameLanguageModelByEveryStrategy) {
  const std::vector<std::string> more{"--precision", "float64", "--micro-batch-size", "2"};
  const auto result =
      compare(tiny_language_model("default,mirrored:2,one_device,mirrored:3,multi_worker:2,default", more));
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(StartsWith("generated language"), HasSubstr("| tokens/s"),
                                HasSubstr("; small, 2 layers, 16 hidden, 2 heads, batches of 10 sequences of "
                                          "24, float64, AdamW at a learning rate of 0.003; ")));
  EXPECT_THAT(result.error, HasSubstr(" tokens/s\n"));
  EXPECT_THAT(text_of(out_ + "/report.html"), HasSubstr("Tokens a second"));
  const auto json = results();
  const std::vector<int> replicas{1, 2, 1, 3, 2, 1};
  ASSERT_EQ(json["strategies"].size(), replicas.size());
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto& row = json["strategies"][i];
    EXPECT_EQ(row["replicas"], replicas[i]) << row;
    EXPECT_LT(row["parameter_difference"], 1e-10) << row;
    ASSERT_EQ(row["losses"].size(), 5U);
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(row["losses"][step].get<double>(), json["strategies"][0]["losses"][step].get<double>(),
                  1e-10);
    EXPECT_GT(row["examples_per_second"]["median"], 0);
    EXPECT_EQ(row["communication_share"] > 0, replicas[i] > 1) << row;
  }
  EXPECT_EQ(json["strategies"][5]["parameter_difference"], 0) << "the same strategy computes the same bits";
  EXPECT_GT(json["strategies"][1]["parameter_difference"], 0) << "two replicas sum in another order";
  EXPECT_EQ(json["work"]["examples"], "tokens");
  // A new model's loss is that of chance, the logarithm of the number of the language's tokens.
  const double vocabulary = 78;
  EXPECT_NEAR(json["strategies"][0]["losses"][0].get<double>(), std::log(vocabulary), 0.1);
  EXPECT_LT(json["strategies"][0]["loss"], json["strategies"][0]["losses"][0]);
}

TEST_F(CompareLanguageModels, ComparesMeshesAndStagesOfSharding) {
  const std::vector<std::string> strategies{
      "default",      "mirrored:tensor=2",           "mirrored:context=2",    "mirrored:shard=2+tensor=2/3",
      "mirrored:2/2", "mirrored:data=2+context=2/1", "multi_worker:tensor=2", "mirrored:tensor=3"};
  std::string list;
  for (const auto& strategy : strategies) list += (list.empty() ? "" : ",") + strategy;
  const auto result = compare(tiny_language_model(list, {"--precision", "float64"}));
  EXPECT_EQ(result.exit_code, 2) << result.error;
  const auto json = results();
  ASSERT_EQ(json["strategies"].size(), strategies.size());
  const std::vector<int> replicas{1, 1, 1, 2, 2, 2, 1};
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto& row = json["strategies"][i];
    EXPECT_EQ(row["label"], strategies[i]);
    ASSERT_TRUE(row["error"].is_null()) << row;
    EXPECT_EQ(row["replicas"], replicas[i]) << row;
    EXPECT_LT(row["parameter_difference"], 1e-10) << row;
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(row["losses"][step].get<double>(), json["strategies"][0]["losses"][step].get<double>(),
                  1e-10);
  }
  EXPECT_EQ(json["strategies"][3]["mesh"], "shard=2,tensor=2");
  EXPECT_EQ(json["strategies"][3]["sharding"], 3);
  EXPECT_THAT(json["strategies"][7]["error"].get<std::string>(),
              HasSubstr("--heads 2: expected a number that the 3 ranks along the axis tensor"));
}

TEST_F(CompareLanguageModels, SpeedsOfLanguageModelsCountTokens) {
  ASSERT_EQ(compare(tiny_language_model("default", {"--backup-dir", folder_.path() + "/backup"})).exit_code,
            0);
  const std::string measured = text_of(folder_.path() + "/backup/checkpoint-000000000001/measurement");
  EXPECT_THAT(measured, HasSubstr("\"examples\":960,")) << "4 timed steps of 10 sequences of 24 tokens";
}

TEST_F(CompareLanguageModels, ResumesAComparisonOfLanguageModels) {
  const std::string backup = folder_.path() + "/backup";
  const auto run = [&](const std::string& out, const std::vector<std::string>& more) {
    out_ = folder_.path() + "/" + out;
    std::vector<std::string> arguments{"--backup-dir", backup};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return compare(tiny_language_model("default,mirrored:2", arguments));
  };
  ASSERT_EQ(run("first", {}).exit_code, 0);
  const auto first = results();
  const auto longer = run("second", {"--rounds", "2"});
  ASSERT_EQ(longer.exit_code, 0) << longer.error;
  EXPECT_THAT(longer.error,
              AllOf(HasSubstr("2 measurements are there already"), Not(HasSubstr("round 1/2"))));
  EXPECT_EQ(results()["strategies"][1]["losses"], first["strategies"][1]["losses"]);
  const auto other = run("third", {"--layers", "1"});
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.error, HasSubstr("expected one of the same comparison, with layers 1, but got layers 2"));
}

TEST_F(CompareLanguageModels, NamesDataOfLanguageModelsThatCannotBeRead) {
  const auto result = compare(tiny_language_model("mirrored:2", {"--data", "/nowhere"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("/nowhere"));
  out_ = folder_.path() + "/weights";
  const auto weights = compare(tiny_language_model("mirrored:2", {"--init-weights", "/nowhere"}));
  EXPECT_EQ(weights.exit_code, 4);
  EXPECT_THAT(weights.out, HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace lockstep::testing
