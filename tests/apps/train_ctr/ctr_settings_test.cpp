#include "lockstep/apps/train_ctr/ctr_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_ctr/ctr_command_line.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using lockstep::testing::TemporaryFile;
using ::testing::HasSubstr;

const std::vector<std::string> kSomeStrategies{"default", "mirrored", "parameter_server"};

CtrCommandLine parsed(const std::vector<std::string>& arguments) {
  return parse_ctr_command_line(arguments, kSomeStrategies);
}

std::string json_of(const CtrCommandLine& line) {
  const CtrFacts facts{.data = "a.txt", .num_train = 9, .num_test = 1, .strategy = "default"};
  return ctr_configuration_json(line.options, facts, line.origins, "1.2.3");
}

TEST(CtrSettings, EveryFlagThatFilesMayGiveIsWritten) {
  std::vector<std::string> written;
  for (const auto& setting : ctr_settings({}, {})) written.push_back(setting.name);
  std::vector<std::string> flags;
  for (const auto& flag : ctr_flags(kSomeStrategies).flags) {
    if (flag.role != FlagRole::kAction) flags.push_back(long_name(flag));
  }
  std::sort(written.begin(), written.end());
  std::sort(flags.begin(), flags.end());
  EXPECT_EQ(written, flags);
}

TEST(CtrSettings, ARunRepeatedFromItsConfigurationHasTheSameOptions) {
  const std::vector<std::vector<std::string>> lines{
      {},
      {"--data", "a.txt,day_*", "--test-share", "0.25", "--skip-bad", "--train-rows", "5"},
      {"--data", "a.txt", "--test-data", "b", "--optimizer", "adam", "--precision", "float64"},
      {"--strategy", "parameter_server", "--table-memory", "64MiB", "--min-frequency", "2"},
      {"--strategy", "parameter_server", "--max-staleness", "0", "--slots-per-step", "3", "--no-look-ahead"},
      {"--strategy", "mirrored", "--replicas", "2", "--seed", "18446744073709551615"},
      {"--model", "dlrm", "--min-frequency", "3", "--steps", "7", "--test-every", "2", "--log-every", "1"}};
  for (const auto& arguments : lines) {
    const auto line = parsed(arguments);
    const TemporaryFile file(json_of(line));
    const auto again = parsed({"--config", file.path()});
    EXPECT_EQ(again.options, line.options) << json_of(line);
  }
}

TEST(CtrSettings, FoldersOfTheRunAreWrittenButNotRepeated) {
  const auto line = parsed({"--data", "a", "--run-dir", "r", "--backup-dir", "b", "--save-every", "5 steps",
                            "--index-dir", "i", "--resume", "never"});
  const std::string text = json_of(line);
  EXPECT_THAT(nlohmann::json::parse(text)["values"]["run-dir"]["value"], "r");
  const TemporaryFile file(text);
  const auto options = parsed({"--config", file.path()}).options;
  EXPECT_EQ(options.run_dir + options.backup_dir + options.index_dir, "");
  EXPECT_EQ(parsed({"--config", file.path(), "--backup-dir", "c"}).options.save_every, "5 steps");
}

TEST(CtrSettings, FlagsOverrideTheFileAndItsValuesThatDependOnThem) {
  const TemporaryFile file(json_of(parsed({"--data", "a", "--skip-bad", "--optimizer", "sgd"})));
  const auto options =
      parsed({"--config", file.path(), "--optimizer", "adam", "--data", "generated"}).options;
  EXPECT_EQ(options.learning_rate, default_learning_rate(CtrOptimizerKind::kAdam));
  EXPECT_TRUE(is_generated(options));
  EXPECT_FALSE(options.skip_bad);
}

TEST(CtrSettings, AnotherProgramsFileIsRefused) {
  const TemporaryFile file(R"({"format_version": 1, "program": "train_images", "values": {}})");
  try {
    parsed({"--config", file.path()});
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("program: expected \"train_ctr\""));
  }
}

TEST(CtrSettings, OriginsAreThoseOfTheCommandLine) {
  const auto line = parsed({"--seed", "3"});
  const auto values = nlohmann::json::parse(json_of(line))["values"];
  EXPECT_EQ(values["seed"]["origin"], "flag");
  EXPECT_EQ(values["steps"]["origin"], "default");
}

}  // namespace
}  // namespace lockstep::apps
