#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/tests/apps/inspect_run/recorded_run.h"
#include "lockstep/tests/support/process_runner.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProcessResult;
using testing::record_run;
using testing::run_process;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using testing::three_epochs;
using testing::write_text;

ProcessResult inspect(const std::vector<std::string>& arguments) {
  return run_process(INSPECT_RUN, arguments);
}

TEST(InspectRunTest, SummarisesARun) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  const auto text = inspect({folder.path()});
  EXPECT_EQ(text.exit_code, 0) << text.error;
  EXPECT_THAT(text.out, AllOf(HasSubstr("completed"), HasSubstr("Configuration"), HasSubstr("Epochs"),
                              HasSubstr("Files")));
  const auto json = inspect({"--json", folder.path()});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(json.out)["status"], "completed");
}

TEST(InspectRunTest, SummarisesTheRestOfADamagedRunAndExitsWith3) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  write_text(folder.path() + "/config.json", "{");
  const auto result = inspect({folder.path()});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Epochs"), HasSubstr("damaged: config.json: parse error")));
}

TEST(InspectRunTest, ExitsWith4WhereThereIsNoRun) {
  const TemporaryFolder folder;
  const auto result = inspect({folder.path()});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.error, StartsWith("inspect_run: error: [inspect_run] expected the directory of a run"));
}

TEST(InspectRunTest, ExitsWith2ForWhatIsNoCommandLine) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  const auto misspelt = inspect({folder.path(), "--jsno"});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.error, HasSubstr("did you mean --json?"));
  EXPECT_EQ(inspect({}).exit_code, 2);
  EXPECT_EQ(inspect({folder.path(), folder.path()}).exit_code, 2);
  EXPECT_EQ(inspect({folder.path() + "/absent"}).exit_code, 2);
  const auto epochs = inspect({folder.path(), "--epochs", "0"});
  EXPECT_EQ(epochs.exit_code, 2);
  EXPECT_THAT(epochs.error, HasSubstr("--epochs: expected"));
}

/// 400,000 epochs, of which the program may keep five.
TEST(InspectRunTest, TakesNoMoreMemoryForALongerRun) {
  const TemporaryFolder folder;
  constexpr int64_t kNumEpochs = 400'000;
  std::string metrics;
  for (int64_t epoch = 1; epoch <= kNumEpochs; ++epoch)
    metrics += R"({"kind": "epoch", "epoch": )" + std::to_string(epoch) + R"(, "loss": 0.5})" + "\n";
  folder.write("metrics.jsonl", metrics);
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--json"}}) {
    std::vector<std::string> arguments{folder.path()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const auto result = run_process(INSPECT_RUN, arguments, {.memory_limit = uint64_t{48} << 20});
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, HasSubstr("400000"));
  }
}

TEST(InspectRunTest, PrintsNoControlCharactersOfNames) {
  const TemporaryFolder folder;
  const std::string run = folder.file("a\x1b]0;owned\x07");
  record_run(run, three_epochs());
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{run}, {run, "--json"}, {run + "/absent"}, {run, "--epochs", "\x1b[2J"}}) {
    const auto result = inspect(arguments);
    for (const char c : result.out + result.error) EXPECT_TRUE(c == '\n' || c >= 0x20) << static_cast<int>(c);
  }
  EXPECT_THAT(inspect({run}).out, HasSubstr("a\\x1b]0;owned\\x07: completed"));
}

TEST(InspectRunTest, HelpsWithExamples) {
  const auto help = inspect({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("inspect_run DIR [flags]"), HasSubstr("Examples:"), HasSubstr("Exit codes:")));
  EXPECT_THAT(inspect({"--version"}).out, StartsWith("inspect_run "));
}

}  // namespace
}  // namespace lockstep
