#include "lockstep/apps/shared/writable_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(WritableFolder, IsMadeAndLeftEmpty) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string wanted = folder.file("a/b");
  require_writable_folder("--backup-dir", wanted);
  EXPECT_TRUE(fs::is_directory(wanted));
  EXPECT_TRUE(fs::is_empty(wanted));
}

TEST(WritableFolder, KeepsTheFilesInIt) {
  const lockstep::testing::TemporaryFolder folder;
  folder.write("checkpoint", "bytes");
  require_writable_folder("--backup-dir", folder.path());
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(WritableFolder, IsNotAskedForWithoutAName) {
  EXPECT_NO_THROW(require_writable_folder("--backup-dir", ""));
}

// These refuse new files and folders even to root.
TEST(WritableFolder, IsRefusedWithItsFlagAndTheCause) {
  for (const std::string folder : {"/proc/sys", "/proc/sys/backup", "/dev/null", "/dev/null/backup"}) {
    EXPECT_THAT([&] { require_writable_folder("--backup-dir", folder); },
                ThrowsMessage<FolderError>(
                    AllOf(HasSubstr("--backup-dir " + folder + ": expected a folder that can be written"),
                          HasSubstr("the system says: "))));
  }
}

}  // namespace
}  // namespace lockstep::apps
