#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting_text.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_images/options/command_line.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

TrainOptions options_from(const Words& arguments) {
  return parse_command_line(arguments, {"default"}).options;
}

std::string refusal_from(const Words& arguments) {
  return message_of<UsageError>([&] { options_from(arguments); });
}

TEST(MonitoringFlags, SayWhereMetricsAreServed) {
  const auto none = options_from({});
  EXPECT_EQ(none.metrics_port, -1);
  const auto options = options_from({"--metrics-port", "9400", "--metrics-address", "0.0.0.0"});
  EXPECT_EQ(options.metrics_port, 9400);
  EXPECT_EQ(options.metrics_address, "0.0.0.0");
  EXPECT_EQ(options_from({"--metrics-port", "0"}).metrics_port, 0);
  EXPECT_EQ(options_from({"--metrics-port", "0"}).metrics_address, "127.0.0.1");
}

TEST(MonitoringFlags, RefuseWrongValuesByTheirName) {
  EXPECT_EQ(refusal_from({"--metrics-port", "65536"}),
            "--metrics-port: expected a whole number from 0 to 65535, but got '65536'");
  EXPECT_EQ(refusal_from({"--metrics-address", "::1"}),
            "--metrics-address ::1: expected --metrics-port with it");
  EXPECT_EQ(refusal_from({"--metrics-port", "1", "--metrics-address", ""}),
            "--metrics-address: expected an address of this machine, but got ''");
  EXPECT_EQ(refusal_from({"--mlflow-dir", ""}), "--mlflow-dir: expected a folder, but got ''");
  EXPECT_THAT(refusal_from({"--find-learning-rate", "--fast-dev-run"}), HasSubstr("--fast-dev-run"));
}

TEST(MonitoringFlags, NameMlflowsFolder) {
  EXPECT_EQ(options_from({}).mlflow_dir, "");
  EXPECT_EQ(options_from({"--mlflow-dir", "mlruns"}).mlflow_dir, "mlruns");
}

TEST(MonitoringFlags, ShortenAFastDevelopmentRun) {
  const auto options =
      options_from({"--fast-dev-run", "--epochs", "90", "--global-batch-size", "8", "--warmup-epochs", "3",
                    "--run-dir", "r", "--backup-dir", "b", "--mlflow-dir", "m", "--limit-train", "100"});
  EXPECT_EQ(options.epochs, 1);
  EXPECT_EQ(options.steps_per_epoch, 5);
  EXPECT_EQ(options.limit_train, 100);
  EXPECT_EQ(options.limit_test, 40);
  EXPECT_EQ(options.warmup_epochs, 1);
  EXPECT_EQ(options.log_every, 1);
  EXPECT_EQ(options.check_replicas, 1);
  EXPECT_EQ(options.run_dir, "r");
  EXPECT_EQ(options.backup_dir, "");
  EXPECT_EQ(options.mlflow_dir, "");
}

TEST(MonitoringFlags, ShortenNothingThatIsShorterAlready) {
  const auto options = options_from(
      {"--fast-dev-run", "--steps-per-epoch", "2", "--limit-test", "3", "--check-replicas", "0"});
  EXPECT_EQ(options.steps_per_epoch, 2);
  EXPECT_EQ(options.limit_test, 3);
  EXPECT_EQ(options.check_replicas, 0);
}

TEST(MonitoringFlags, AreInTheHelp) {
  const auto help = train_help_text(Words{"default"});
  for (const std::string flag :
       {"--metrics-port", "--metrics-address", "--mlflow-dir", "--find-learning-rate", "--fast-dev-run"})
    EXPECT_THAT(help, HasSubstr(flag));
}

TEST(SettingText, IsWhatAPersonWouldType) {
  EXPECT_EQ(setting_text({}), "");
  EXPECT_EQ(setting_text(true), "true");
  EXPECT_EQ(setting_text(int64_t{-3}), "-3");
  EXPECT_EQ(setting_text(uint64_t{18446744073709551615U}), "18446744073709551615");
  EXPECT_EQ(setting_text(0.1), "0.1");
  EXPECT_EQ(setting_text(std::string("a b")), "a b");
  EXPECT_EQ(setting_text(Words{"cpu:0", "cpu:1"}), "cpu:0,cpu:1");
}

}  // namespace
}  // namespace lockstep::apps
