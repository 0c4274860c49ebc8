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

TEST(InspectRunTest, HelpsWithExamples) {
  const auto help = inspect({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("inspect_run DIR [flags]"), HasSubstr("Examples:"), HasSubstr("Exit codes:")));
  EXPECT_THAT(inspect({"--version"}).out, StartsWith("inspect_run "));
}

}  // namespace
}  // namespace lockstep
