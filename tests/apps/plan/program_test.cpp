#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/tests/support/process_runner.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using testing::ProcessResult;
using testing::run_process;
using Words = std::vector<std::string>;

const Words kMachines{"--devices", "64",     "--memory",  "80GiB",       "--gpu",
                      "H100",      "--link", "400Gbit/s", "--precision", "bfloat16"};

ProcessResult run_plan(Words arguments, const Words& more = {}) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_process(PLAN, arguments);
}

Words words_in(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PlanProgram, PlansMachinesThatAreNotHere) {
  const testing::TemporaryFolder folder;
  const std::string json = folder.path() + "/plan.json", svg = folder.path() + "/memory.svg";
  const auto result = run_plan(
      {"--model", "llama-2-7b", "--global-batch-size", "512", "--json", json, "--svg", svg}, kMachines);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("6.74 billion parameters"));
  EXPECT_THAT(result.out, HasSubstr("this plan is arithmetic"));
  EXPECT_THAT(result.out, HasSubstr("Run it, on each of the 8 machines"));
  EXPECT_THAT(text_of(svg), HasSubstr("(arithmetic)"));
  const auto plan = nlohmann::json::parse(text_of(json));
  EXPECT_TRUE(plan["is_arithmetic"]);
  EXPECT_EQ(plan["model"]["parameters"], 6738415616.0);
  ASSERT_EQ(plan["ranked"].size(), 10);
  double before = 0;
  for (const auto& layout : plan["ranked"]) {
    EXPECT_GE(layout["seconds"], before);
    before = layout["seconds"];
    EXPECT_LE(layout["memory"]["peak"], 0.95 * 80 * 1024 * 1024 * 1024);
    double sum = 0;
    for (const auto& [part, seconds] : layout["time"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, layout["seconds"], 1e-9);
  }
}

TEST(PlanProgram, FitsIntoATerminal) {
  const auto result = run_plan({"--model", "llama-3.1-8b", "--global-batch-size", "256"}, kMachines);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  std::istringstream lines(result.out);
  bool is_table = false;
  for (std::string line; std::getline(lines, line);) {
    is_table =
        line.starts_with("   ") && is_table ? is_table : line.starts_with("   #") || line.starts_with("  #");
    // Rows of the table are as wide as they need to be.
    if (!is_table && !line.starts_with("  ")) EXPECT_LE(line.size(), 110U) << line;
  }
}

TEST(PlanProgram, SaysWhatNeedsLeastIfNothingFits) {
  const auto result =
      run_plan({"--model", "llama-2-7b", "--devices", "2", "--memory", "16GiB", "--flops", "4T"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.out, HasSubstr("No layout fits"));
  EXPECT_THAT(result.out, HasSubstr("0 fit"));
}

TEST(PlanProgram, RefusesWrongFlags) {
  const auto result = run_plan({"--memory", "80Gbit"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, HasSubstr("--memory: expected bytes such as 80GiB, but got '80Gbit'"));
}

// The flags that it prints train here, on as many devices as the plan has.
TEST(PlanProgram, NamesFlagsThatTrain) {
  const auto planned =
      run_plan({"--devices", "4", "--memory", "64MiB", "--flops", "1G", "--gpus-per-machine", "4", "--mesh",
                "shard=2,pipeline=2", "--global-batch-size", "8", "--top", "1"});
  ASSERT_EQ(planned.exit_code, 0) << planned.error;
  const size_t begin = planned.out.find("\n  train_gpt ");
  ASSERT_NE(begin, std::string::npos) << planned.out;
  const std::string command = planned.out.substr(begin, planned.out.find("\n\n", begin) - begin);
  Words flags = words_in(std::regex_replace(command, std::regex(R"(\\)"), ""));
  flags.erase(flags.begin());  // train_gpt
  EXPECT_THAT(flags, ::testing::Contains("shard=2,pipeline=2"));
  for (const std::string more : {"--steps", "2", "--limit-test", "4"}) flags.push_back(more);
  const auto trained = run_process(TRAIN_GPT, flags);
  EXPECT_EQ(trained.exit_code, 0) << trained.error;
}

TEST(TrainGptPlan, RefusesWhatDoesNotFitUntilItsAdviceIsFollowed) {
  const Words training{"--steps", "2", "--limit-test", "4", "--device-memory", "30MiB"};
  const auto refused = run_process(TRAIN_GPT, training);
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_THAT(refused.error, HasSubstr("the training needs"));
  std::smatch advice;
  ASSERT_TRUE(std::regex_search(refused.error, advice, std::regex("it fits with (.*)\\. --plan off")))
      << refused.error;
  Words followed = training;
  for (const auto& word : words_in(std::regex_replace(advice[1].str(), std::regex(","), "")))
    followed.push_back(word);
  EXPECT_EQ(run_process(TRAIN_GPT, followed).exit_code, 0);
  Words insisting = training;
  insisting.insert(insisting.end(), {"--plan", "off"});
  EXPECT_EQ(run_process(TRAIN_GPT, insisting).exit_code, 0);
}

TEST(TrainGptPlan, ChoosesALayout) {
  const Words training{"--steps", "2", "--limit-test", "4", "--replicas", "2", "--plan", "auto"};
  const auto result = run_process(TRAIN_GPT, training);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("plan: --mesh "));
  Words with_mesh = training;
  with_mesh.insert(with_mesh.end(), {"--mesh", "data=2"});
  const auto refused = run_process(TRAIN_GPT, with_mesh);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error, HasSubstr("expected it without --plan auto"));
}

// The recorded configuration runs the chosen layout again.
TEST(TrainGptPlan, RecordsTheLayoutThatItChose) {
  const testing::TemporaryFolder folder;
  const std::string first = folder.path() + "/a";
  const auto result = run_process(TRAIN_GPT, {"--steps", "2", "--limit-test", "4", "--replicas", "2",
                                              "--plan", "auto", "--run-dir", first});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto values = nlohmann::json::parse(text_of(first + "/config.json"))["values"];
  EXPECT_EQ(values["plan"]["value"], "check");
  EXPECT_THAT(values["mesh"]["value"].get<std::string>(), HasSubstr("=2"));
  const auto again = run_process(TRAIN_GPT, {"--config", first + "/config.json"});
  EXPECT_EQ(again.exit_code, 0) << again.error;
}

}  // namespace
}  // namespace lockstep::apps
