#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
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

/// Returns the words of the command that the plan says to run.
Words command_in(const std::string& plan) {
  const std::string head = "\nRun it:\n  ";
  const size_t begin = plan.find(head);
  if (begin == std::string::npos) return {};
  const std::string command =
      plan.substr(begin + head.size(), plan.find("\n\n", begin) - begin - head.size());
  return words_in(std::regex_replace(command, std::regex(R"(\\)"), ""));
}

TEST(PlanProgram, PlansModelsOfImages) {
  const testing::TemporaryFolder folder;
  const std::string json = folder.path() + "/plan.json";
  const auto result =
      run_plan({"--model", "mobilenet_v2", "--image-size", "48", "--classes", "100", "--global-batch-size",
                "512", "--devices", "16", "--memory", "16GiB", "--gpu", "V100", "--json", json});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("mobilenet_v2, images of 48 x 48 pixels, 100 classes"));
  EXPECT_THAT(result.out, HasSubstr("images/s"));
  EXPECT_THAT(result.out, HasSubstr("train_images --model mobilenet_v2 --image-size 48"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("recompute")));
  const auto plan = nlohmann::json::parse(text_of(json));
  EXPECT_EQ(plan["program"], "train_images");
  EXPECT_EQ(plan["model"]["parameters"], 2223872.0 + 1281 * 100);  // torchvision's, with so many classes
  EXPECT_EQ(plan["ranked"].size(), 10);
}

TEST(PlanProgram, NamesFlagsThatTrainImages) {
  for (const std::string mesh : {"pipeline=2", "shard=2"}) {
    const auto planned =
        run_plan({"--model", "simple_cnn", "--devices", "2", "--gpus-per-machine", "2", "--memory", "1GiB",
                  "--flops", "1G", "--mesh", mesh, "--global-batch-size", "32", "--top", "1"});
    ASSERT_EQ(planned.exit_code, 0) << planned.error;
    Words flags = command_in(planned.out);
    ASSERT_THAT(flags, ::testing::Contains(mesh)) << planned.out;
    ASSERT_EQ(flags.front(), "train_images");
    flags.erase(flags.begin());
    for (const std::string more :
         {"--data", "generated", "--limit-train", "64", "--limit-test", "32", "--epochs", "1"})
      flags.push_back(more);
    const auto trained = run_process(TRAIN_IMAGES, flags);
    EXPECT_EQ(trained.exit_code, 0) << trained.error;
  }
}

const Words kFewClicks{"--steps", "4", "--train-rows", "2000", "--test-rows", "500"};

TEST(PlanProgram, NamesFlagsThatTrainClickModels) {
  const auto planned =
      run_plan({"--model", "dlrm", "--table-rows", "5000", "--devices", "2", "--gpus-per-machine", "2",
                "--memory", "1GiB", "--flops", "1G", "--optimizer", "adam"});
  ASSERT_EQ(planned.exit_code, 0) << planned.error;
  EXPECT_THAT(planned.out, HasSubstr("by rows on 1 server"));
  Words flags = command_in(planned.out);
  ASSERT_FALSE(flags.empty()) << planned.out;
  ASSERT_EQ(flags.front(), "train_ctr");
  flags.erase(flags.begin());
  flags.insert(flags.end(), kFewClicks.begin(), kFewClicks.end());
  const auto trained = run_process(TRAIN_CTR, flags);
  EXPECT_EQ(trained.exit_code, 0) << trained.error;
}

// A table that no replica has room for, with its state, lies on servers.
TEST(PlanProgram, NamesServersThatTrainClickModels) {
  const auto planned =
      run_plan({"--model", "wide_deep", "--table-rows", "500000", "--devices", "3", "--gpus-per-machine", "3",
                "--memory", "60MiB", "--flops", "1G", "--memory-bandwidth", "1GB/s"});
  ASSERT_EQ(planned.exit_code, 0) << planned.error;
  EXPECT_THAT(planned.out, HasSubstr("1 fit"));
  EXPECT_THAT(planned.out, HasSubstr("most of it for tables"));
  Words command = command_in(planned.out);
  ASSERT_FALSE(command.empty()) << planned.out;
  ASSERT_EQ(command.front(), "lockstep_launch_local");
  EXPECT_THAT(command, ::testing::Contains("parameter_server"));
  command.erase(command.begin());
  *std::find(command.begin(), command.end(), "train_ctr") = TRAIN_CTR;
  command.insert(command.end(), kFewClicks.begin(), kFewClicks.end());
  const auto trained = run_process(LAUNCHER, command);
  EXPECT_EQ(trained.exit_code, 0) << trained.error << trained.out;
}

TEST(PlanProgram, RefusesFlagsOfOtherModels) {
  const auto refused = [](const Words& arguments) {
    const auto result = run_plan(arguments);
    EXPECT_EQ(result.exit_code, 2);
    return result.error;
  };
  EXPECT_THAT(refused({"--model", "dlrm", "--layers", "3"}),
              HasSubstr("--layers 3: expected it with --model"));
  EXPECT_THAT(refused({"--model", "mobilenet_v2", "--table-rows", "3"}),
              HasSubstr("expected it with --model wide_deep, dlrm only, but got --model mobilenet_v2"));
  EXPECT_THAT(refused({"--optimizer", "sgd"}), HasSubstr("but got --model small"));
  EXPECT_THAT(refused({"--model", "dlrm", "--precision", "bfloat16"}), HasSubstr("float32"));
  EXPECT_THAT(refused({"--model", "simple_cnn", "--image-size", "3"}), HasSubstr("--image-size"));
}

/// Runs a training that does not fit, then with the flags that its refusal names, and then with --plan off.
void expect_advice_that_helps(const char* program, const Words& training) {
  const auto refused = run_process(program, training);
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_THAT(refused.error, HasSubstr("the training needs"));
  std::smatch advice;
  ASSERT_TRUE(std::regex_search(refused.error, advice, std::regex("it fits with (.*)\\. --plan off")))
      << refused.error;
  Words followed = training;
  for (const auto& word : words_in(std::regex_replace(advice[1].str(), std::regex(","), "")))
    followed.push_back(word);
  const auto after = run_process(program, followed);
  EXPECT_EQ(after.exit_code, 0) << after.error;
  Words insisting = training;
  insisting.insert(insisting.end(), {"--plan", "off"});
  EXPECT_EQ(run_process(program, insisting).exit_code, 0);
}

TEST(TrainGptPlan, RefusesWhatDoesNotFitUntilItsAdviceIsFollowed) {
  expect_advice_that_helps(TRAIN_GPT, {"--steps", "2", "--limit-test", "4", "--device-memory", "30MiB"});
}

const Words kFewImages{"--data", "generated", "--limit-train", "64", "--limit-test", "32", "--epochs", "1"};

Words with_few_images(Words flags) {
  flags.insert(flags.end(), kFewImages.begin(), kFewImages.end());
  return flags;
}

TEST(TrainImagesPlan, RefusesWhatDoesNotFitUntilItsAdviceIsFollowed) {
  expect_advice_that_helps(TRAIN_IMAGES, with_few_images({"--device-memory", "15MiB"}));
  expect_advice_that_helps(TRAIN_IMAGES, with_few_images({"--model", "mobilenet_v2", "--image-size", "40",
                                                          "--replicas", "2", "--device-memory", "50MiB"}));
}

TEST(TrainImagesPlan, RefusesBeforeItMakesAFolder) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  const auto refused =
      run_process(TRAIN_IMAGES, with_few_images({"--device-memory", "1MiB", "--run-dir", run}));
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_THAT(refused.error, HasSubstr("no other layout of these devices fits"));
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST(TrainImagesPlan, ChoosesALayoutAndRecordsIt) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  const Words training = with_few_images({"--replicas", "2", "--plan", "auto", "--run-dir", run});
  const auto result = run_process(TRAIN_IMAGES, training);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("plan: --mesh "));
  const auto values = nlohmann::json::parse(text_of(run + "/config.json"))["values"];
  EXPECT_EQ(values["plan"]["value"], "check");
  EXPECT_THAT(values["mesh"]["value"].get<std::string>(), HasSubstr("=2"));
  EXPECT_EQ(run_process(TRAIN_IMAGES, {"--config", run + "/config.json"}).exit_code, 0);
  for (const Words& more : {Words{"--mesh", "data=2"}, Words{"--accumulate-steps", "2"}}) {
    Words with_layout = with_few_images({"--replicas", "2", "--plan", "auto"});
    with_layout.insert(with_layout.end(), more.begin(), more.end());
    const auto refused = run_process(TRAIN_IMAGES, with_layout);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.error, HasSubstr("expected it without --plan auto"));
  }
}

TEST(TrainCtrPlan, RefusesWhatDoesNotFitAndNamesServers) {
  Words training{"--table-rows", "500000", "--replicas", "4", "--device-memory", "60MiB"};
  training.insert(training.end(), kFewClicks.begin(), kFewClicks.end());
  const auto refused = run_process(TRAIN_CTR, training);
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_THAT(refused.error,
              HasSubstr("it fits with --strategy parameter_server, --max-staleness 0, 2 servers and 2 "
                        "replicas. --plan off"));
  Words followed{
      "--ps", "2", "--workers", "2", TRAIN_CTR, "--strategy", "parameter_server", "--max-staleness", "0"};
  followed.insert(followed.end(), {"--table-rows", "500000"});
  followed.insert(followed.end(), kFewClicks.begin(), kFewClicks.end());
  EXPECT_EQ(run_process(LAUNCHER, followed).exit_code, 0);
  training.insert(training.end(), {"--plan", "off"});
  EXPECT_EQ(run_process(TRAIN_CTR, training).exit_code, 0);
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
