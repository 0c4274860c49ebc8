#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

TEST(Help, ListsEveryFlagWithItsDefault) {
  const std::string help = train_help_text({"default", "mine"});
  for (const std::string flag : {"--strategy",
                                 "--devices",
                                 "--replicas",
                                 "--replicas-per-device",
                                 "--cross-device-ops",
                                 "--communication-timeout",
                                 "--threads",
                                 "--worker-hosts",
                                 "--task-index",
                                 "--communication",
                                 "--exchange-algorithm",
                                 "--encrypt",
                                 "--gradient-compression",
                                 "--list-devices",
                                 "--data",
                                 "--test-data",
                                 "--test-share",
                                 "--image-column",
                                 "--label-column",
                                 "--parquet-memory",
                                 "--limit-train",
                                 "--limit-test",
                                 "--skip-bad",
                                 "--exif-orientation",
                                 "--image-cache",
                                 "--model",
                                 "--image-size",
                                 "--head",
                                 "--sync-batch-norm",
                                 "--refresh-batch-norm",
                                 "--epochs",
                                 "--steps-per-epoch",
                                 "--global-batch-size",
                                 "--per-replica-batch-size",
                                 "--precision",
                                 "--cuda-graph",
                                 "--no-cudnn-benchmark",
                                 "--optimizer",
                                 "--learning-rate",
                                 "--learning-rate-schedule",
                                 "--scale-learning-rate",
                                 "--base-batch-size",
                                 "--momentum",
                                 "--seed",
                                 "--run-dir",
                                 "--config",
                                 "--retryable-exit-code",
                                 "--quiet",
                                 "--init-weights",
                                 "--strict",
                                 "--clip-norm",
                                 "--accumulate-steps",
                                 "--pipeline-schedule",
                                 "--stages-per-rank",
                                 "--pipeline-cut",
                                 "--warmup-epochs",
                                 "--schedule-step-epochs",
                                 "--schedule-factor",
                                 "--early-stopping",
                                 "--profile",
                                 "--log-every",
                                 "--help",
                                 "--version"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  for (const std::string value :
       {"(default: auto)", "(default: simple_cnn)", "(default: 64)", "(default: 0.001)", "(default: 1800)",
        "(default: 32)", "(default: 5)", "(default: cosine)", "auto, default, mine", "Examples:"}) {
    EXPECT_THAT(help, HasSubstr(value));
  }
}

TEST(Help, NamesEveryExitCodeOfTheProgram) {
  const std::string help = train_help_text({});
  const std::string codes = help.substr(help.find("Exit codes: "));
  for (const std::string code :
       {" 0 done", " 1 any other error", " 2 usage", " 3 data", " 4 checkpoint", "\n5 replicas",
        " 6 loss not finite", "\n7 no memory, disk space, thread or device", " 130 and 143: stopped"}) {
    EXPECT_THAT(codes, HasSubstr(code));
  }
}

TEST(Help, FitsIntoATerminalOf100Columns) {
  std::istringstream help(train_help_text({"default", "mine"}, "/bin/train_images"));
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
