#include "lockstep/apps/plan/plan_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/plan/plan_flags.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

using Words = std::vector<std::string>;

PlanOptions planned_by(const Words& arguments) {
  return parse_plan_command_line(arguments).options;
}

void expect_refused(const Words& arguments, const std::string& message) {
  try {
    parse_plan_command_line(arguments);
    FAIL() << message;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(message));
  }
}

TEST(PlanOptions, PlanTheModelThatTrainGptTrains) {
  const auto options = planned_by({"--model", "llama-2-7b", "--precision", "bfloat16"});
  EXPECT_EQ(num_gpt_parameters(options.model), num_gpt_parameters(gpt_preset("llama-2-7b")));
  EXPECT_EQ(options.sequence_length, 1024);
  EXPECT_EQ(options.numbers, PlannedNumbers::kMixed);
  EXPECT_EQ(options.training.parameter_bytes, 4);
  EXPECT_EQ(options.model_flags, (Words{"--model", "llama-2-7b", "--precision", "bfloat16"}));
}

TEST(PlanOptions, MakeAModelOfSizes) {
  const auto options =
      planned_by({"--model", "gpt", "--family", "gpt2", "--layers", "96", "--hidden", "12288", "--heads",
                  "96", "--vocabulary-size", "50257", "--sequence-length", "2048"});
  // GPT-3 without a head of its own has 174.6 billion; --family gpt2 ties it.
  EXPECT_NEAR(static_cast<double>(num_gpt_parameters(options.model)), 174.6e9, 0.1e9);
  EXPECT_EQ(options.sequence_length, 2048);
  expect_refused({"--model", "gpt", "--layers", "2", "--heads", "2"}, "expected --hidden with it");
}

TEST(PlanOptions, CountTokensOfAStep) {
  EXPECT_EQ(planned_by({"--model", "llama-2-7b", "--tokens-per-step", "4194304", "--sequence-length", "4096"})
                .training.global_batch,
            1024);
  expect_refused({"--tokens-per-step", "1000"}, "a multiple of the sequence length 128");
}

TEST(PlanOptions, DescribeOtherMachines) {
  const auto options = planned_by({"--devices", "64", "--memory", "80GiB", "--gpu", "H100", "--link",
                                   "400Gbit/s", "--precision", "bfloat16", "--efficiency", "0.4"});
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  EXPECT_FALSE(options.is_here);
  EXPECT_EQ(options.cluster.devices, 64);
  EXPECT_EQ(options.cluster.devices_per_machine, 8);
  EXPECT_DOUBLE_EQ(options.cluster.memory_bytes, 0.95 * 80 * kGibibyte);
  EXPECT_DOUBLE_EQ(options.cluster.flops_per_second, 0.4 * 989.4e12);
  // All devices of a machine together.
  EXPECT_DOUBLE_EQ(options.cluster.between.bytes_per_second, 8 * 50e9);
}

TEST(PlanOptions, LeaveThisMachineToMeasurements) {
  const auto options = planned_by({"--devices", "2"});
  EXPECT_TRUE(options.is_here);
  EXPECT_EQ(options.cluster.flops_per_second, 0);
  EXPECT_EQ(options.cluster.devices_per_machine, 2);
}

TEST(PlanOptions, RefuseWhatIsMissing) {
  expect_refused({"--gpu", "H100", "--devices", "8"}, "--memory");
  expect_refused({"--gpu", "Voodoo", "--memory", "8GiB"}, "a GPU with a known speed");
  expect_refused({"--gpu", "H100", "--memory", "80GiB", "--devices", "12"},
                 "a multiple of the 8 of --gpus-per-machine");
  expect_refused({"--gpu", "H100", "--flops", "1T", "--memory", "8GiB"}, "--flops");
  expect_refused({"--memory", "8GiB", "--reserve", "9GiB"}, "less than --memory");
  expect_refused({"--model", "gpt3"}, "gpt2");
}

TEST(PlanFlags, FitIntoATerminal) {
  const std::string help = plan_help_text();
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace lockstep::apps
