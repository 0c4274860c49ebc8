#include "lockstep/training/reporting/records/run_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>

#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_in;
using testing::OtherProcess;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

TEST(RunDirectoryTest, MakesTheFolderWithItsParts) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/runs/a";
  const RunDirectory run(path);
  EXPECT_THAT(names_in(path), ElementsAre(".lock", "checkpoints", "tb"));
  EXPECT_EQ(run.paths().config(), path + "/config.json");
  EXPECT_EQ(run.paths().metrics_csv(), path + "/metrics.csv");
  EXPECT_EQ(run.paths().metrics_jsonl(), path + "/metrics.jsonl");
  EXPECT_EQ(run.paths().report(), path + "/report.html");
}

TEST(RunDirectoryTest, TakesAnEmptyFolderAndGivesItUp) {
  const TemporaryFolder folder;
  { const RunDirectory run(folder.path()); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoints", "tb"));
  EXPECT_EQ(run_directory_owner({folder.path()}), std::nullopt);
}

TEST(RunDirectoryTest, RefusesAnotherRunsFilesAndChangesNothing) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/config.json", "{}");
  write_text(folder.path() + "/metrics.csv", "epoch\n1\n");
  EXPECT_THAT(
      [&] { RunDirectory run(folder.path()); },
      ThrowsMessage<RunDirectoryError>(AllOf(HasSubstr("expected a new or empty folder"),
                                             HasSubstr(folder.path()), HasSubstr("config.json and 1 more"))));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("config.json", "metrics.csv"));
  EXPECT_EQ(read_text(folder.path() + "/metrics.csv"), "epoch\n1\n");
}

TEST(RunDirectoryTest, NamesTheProcessThatUsesIt) {
  const TemporaryFolder folder;
  std::unique_ptr<RunDirectory> run;
  OtherProcess other([&] { run = std::make_unique<RunDirectory>(folder.path()); });
  ASSERT_TRUE(other.is_ready());
  const std::string owner = "process " + std::to_string(other.id()) + " on ";
  EXPECT_THAT(
      [&] { RunDirectory second(folder.path()); },
      ThrowsMessage<RunDirectoryError>(AllOf(HasSubstr("is in use by " + owner), HasSubstr(folder.path()))));
  EXPECT_THAT(run_directory_owner({folder.path()}).value_or(""), HasSubstr(owner));
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock", "checkpoints", "tb"));
}

TEST(RunDirectoryTest, IsInUseWithinOneProcessToo) {
  const TemporaryFolder folder;
  const RunDirectory first(folder.path());
  EXPECT_THAT([&] { RunDirectory second(folder.path()); },
              ThrowsMessage<RunDirectoryError>(HasSubstr("process " + std::to_string(getpid()))));
}

TEST(RunDirectoryTest, HasNoOwnerOnceThatWasKilled) {
  const TemporaryFolder folder;
  std::unique_ptr<RunDirectory> run;
  OtherProcess other([&] { run = std::make_unique<RunDirectory>(folder.path()); });
  ASSERT_TRUE(other.is_ready());
  other.end();
  EXPECT_EQ(run_directory_owner({folder.path()}), std::nullopt);
  EXPECT_THAT([&] { RunDirectory second(folder.path()); },
              ThrowsMessage<RunDirectoryError>(HasSubstr("expected a new or empty folder")));
}

TEST(RunDirectoryTest, TakesAFolderWithNothingButALockOfAKilledProcess) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/.lock", "process 1 on elsewhere\n");
  const RunDirectory run(folder.path());
  EXPECT_THAT(read_text(run.paths().lock()), HasSubstr("process " + std::to_string(getpid())));
}

TEST(RunDirectoryTest, LookingAtTheOwnerTakesNothing) {
  const TemporaryFolder folder;
  const RunDirectory run(folder.path());
  EXPECT_TRUE(run_directory_owner(run.paths()).has_value());
  EXPECT_TRUE(run_directory_owner(run.paths()).has_value());
  EXPECT_EQ(run_directory_owner({folder.path() + "/absent"}), std::nullopt);
}

TEST(RunDirectoryTest, AnotherUserSeesThatItMayBeInUse) {
  const TemporaryFolder folder;
  const RunDirectory run(folder.path());
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setegid(kNobody) != 0 || seteuid(kNobody) != 0)) _exit(2);
    _exit(run_directory_owner(run.paths()).has_value() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunDirectoryTest, RefusesWhatCannotBeAFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  write_text(file, "text");
  for (const std::string& path : {file, file + "/below", std::string("/proc/lockstep-run")}) {
    EXPECT_THAT([&] { RunDirectory run(path); },
                ThrowsMessage<RunDirectoryError>(
                    AllOf(HasSubstr("expected a folder that can be written"), HasSubstr(path))));
  }
  EXPECT_THAT([] { RunDirectory run(""); }, ThrowsMessage<RunDirectoryError>(HasSubstr("but got ''")));
}

TEST(RunDirectoryTest, RefusesALinkInThePlaceOfItsLock) {
  const TemporaryFolder folder;
  const std::string target = folder.path() + "/target";
  write_text(target, "precious");
  const std::string run = folder.path() + "/run";
  std::filesystem::create_directory(run);
  std::filesystem::create_symlink(target, run + "/.lock");
  EXPECT_THROW(RunDirectory{run}, RunDirectoryError);
  EXPECT_EQ(read_text(target), "precious");
}

}  // namespace
}  // namespace lockstep
