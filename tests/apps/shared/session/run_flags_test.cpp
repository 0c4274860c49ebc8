#include "lockstep/apps/shared/session/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RunChoice read_flags(const std::vector<std::string>& arguments) {
  RunChoice choice;
  read_run(parse_arguments({.program = "program", .flags = run_flags()}, arguments), choice);
  return choice;
}

TEST(RunFlags, AreReadIntoTheChoice) {
  RunChoice expected;
  expected.quiet = true;
  expected.run_dir = "runs/a";
  expected.log_every = 3;
  expected.profile = 7;
  expected.fast_dev_run = true;
  expected.check_replicas = 0;
  expected.on_not_finite = NotFiniteAction::kSkip;
  expected.backup_dir = "b";
  expected.save_every = "5 steps";
  expected.shard_backup = true;
  expected.resume = "never";
  expected.retryable_exit_code = 200;
  expected.metrics_port = 0;
  expected.metrics_address = "::1";
  expected.mlflow_dir = "m";
  expected.profile_input = true;
  EXPECT_EQ(read_flags({"--quiet",
                        "--run-dir",
                        "runs/a",
                        "--log-every",
                        "3",
                        "--profile",
                        "7",
                        "--fast-dev-run",
                        "--check-replicas",
                        "0",
                        "--on-not-finite",
                        "skip",
                        "--backup-dir",
                        "b",
                        "--save-every",
                        "5 steps",
                        "--shard-backup",
                        "--resume",
                        "never",
                        "--retryable-exit-code",
                        "200",
                        "--metrics-port",
                        "0",
                        "--metrics-address",
                        "::1",
                        "--mlflow-dir",
                        "m",
                        "--profile-input"}),
            expected);
  EXPECT_EQ(read_flags({}), RunChoice());
}

TEST(RunFlags, HaveAValueEachUnlessTheyAreActions) {
  const auto values = run_values({});
  for (const auto& flag : run_flags()) {
    const auto has_name = [&](const auto& value) { return value.first == flag.name; };
    EXPECT_EQ(std::count_if(values.begin(), values.end(), has_name), flag.role == FlagRole::kAction ? 0 : 1)
        << flag.name;
  }
}

TEST(RunFlags, RefuseEmptyFoldersAndIntervalsThatAreNone) {
  for (const std::string flag : {"--run-dir", "--backup-dir", "--mlflow-dir"})
    EXPECT_THAT(
        [&] {
          read_flags({flag, ""});
        },
        ThrowsMessage<UsageError>(HasSubstr(flag + ": expected a folder")));
  EXPECT_THAT(
      [] {
        read_flags({"--save-every", "0 steps"});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("--save-every"), HasSubstr("N being positive"))));
}

TEST(RunFlags, RowsSayWhatIsKeptAndWhere) {
  EXPECT_EQ(run_rows({}), "");
  const auto choice = read_flags({"--run-dir", "r", "--backup-dir", "b", "--shard-backup"});
  EXPECT_EQ(run_rows(choice), "recorded in      r\nsaved in         b, every epoch, each worker a part\n");
}

}  // namespace
}  // namespace lockstep::apps
