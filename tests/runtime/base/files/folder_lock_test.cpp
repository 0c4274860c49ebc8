#include "lockstep/runtime/base/files/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::OtherProcess;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

/// A process that owns the folder until it is killed.
OtherProcess owner_of(const std::string& path, const std::string& job = "", int64_t generation = 0) {
  return OtherProcess([=] { new FolderLock(path, FolderOwner::here(job, generation)); });
}

TEST(FolderLockTest, IsOneProcessesAndGoesWithIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  {
    const FolderLock lock(path, FolderOwner::here());
    EXPECT_TRUE(lock.holds());
    EXPECT_EQ(folder_owner(path), FolderOwner::here().describe());
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
  EXPECT_EQ(folder_owner(path), "");
}

TEST(FolderLockTest, RefusesASecondOwnerByTheFirstOnesProcess) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  const OtherProcess owner = owner_of(path);
  ASSERT_TRUE(owner.is_ready());
  EXPECT_THAT([&] { FolderLock(path, FolderOwner::here()); },
              ThrowsMessage<FolderInUse>(HasSubstr("process " + std::to_string(owner.id()) + " on ")));
}

TEST(FolderLockTest, WhatAKilledProcessLeftIsNoLock) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  OtherProcess owner = owner_of(path);
  ASSERT_TRUE(owner.is_ready());
  owner.end();
  EXPECT_EQ(folder_owner(path), "");
  EXPECT_TRUE(FolderLock(path, FolderOwner::here()).holds());
}

TEST(FolderLockTest, ALaterGenerationOfTheSameJobFencesTheEarlierOff) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  const FolderLock first(path, FolderOwner::here("a job", 0));
  EXPECT_THROW(FolderLock(path, FolderOwner::here("a job", 0)), FolderInUse);
  EXPECT_THROW(FolderLock(path, FolderOwner::here("another job", 1)), FolderInUse);
  {
    const FolderLock second(path, FolderOwner::here("a job", 1));
    EXPECT_FALSE(first.holds());
    EXPECT_TRUE(second.holds());
    EXPECT_THROW(FolderLock(path, FolderOwner::here("a job", 0)), FolderInUse);
    EXPECT_THROW(FolderLock(path, FolderOwner::here("a job", 1)), FolderInUse);
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(FolderLockTest, WithoutAJobNobodyIsFencedOff) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  const FolderLock first(path, FolderOwner::here("", 0));
  EXPECT_THROW(FolderLock(path, FolderOwner::here("", 1)), FolderInUse);
  EXPECT_TRUE(first.holds());
}

TEST(FolderLockTest, AFencedOwnerLeavesTheLaterOnesFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  auto first = std::make_unique<FolderLock>(path, FolderOwner::here("a job", 0));
  const FolderLock second(path, FolderOwner::here("a job", 1));
  first.reset();
  EXPECT_TRUE(second.holds());
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

/// Sets the mode that new files have, and the former one at the end.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t before_;
};

TEST(FolderLockTest, OnlyItsUserCanReadTheFileWhateverTheUmask) {
  for (const mode_t mask : {0000, 0022, 0077}) {
    const Umask umask(mask);
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/lock";
    const FolderLock first(path, FolderOwner::here("a job", 0));
    EXPECT_EQ(mode_of(path), 0600U) << mask;
    const FolderLock second(path, FolderOwner::here("a job", 1));  // puts another file in its place
    EXPECT_EQ(mode_of(path), 0600U) << mask;
  }
}

TEST(FolderLockTest, TakesTheRightsOfOthersFromAnEarlierVersionsFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  write_text(path, "");
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  const FolderLock lock(path, FolderOwner::here());
  EXPECT_EQ(mode_of(path), 0600U);
}

/// Takes a shared lock, for which a descriptor to read from is enough, and keeps it as long as it lives.
bool lock_for_reading(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_RDLCK;
  return file >= 0 && ::fcntl(file, F_OFD_SETLK, &lock) == 0;
}

TEST(FolderLockTest, AnotherUserCannotKeepAJobFromResuming) {
  if (!testing::can_become_other_user()) GTEST_SKIP() << "only root can become another user";
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const std::string path = folder.path() + "/lock";
  OtherProcess killed = owner_of(path);
  ASSERT_TRUE(killed.is_ready());
  killed.end();
  const OtherProcess attacker([&] {
    if (testing::become_other_user()) lock_for_reading(path);
  });
  EXPECT_TRUE(attacker.is_ready());
  EXPECT_TRUE(testing::run_as_other_user([&] { return !lock_for_reading(path) && errno == EACCES; }));
  EXPECT_TRUE(testing::run_as_other_user([&] { return folder_owner(path) == "a process of another user"; }));
  EXPECT_TRUE(FolderLock(path, FolderOwner::here()).holds());
}

TEST(FolderLockTest, RefusesAPipeInPlaceOfTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(folder_owner(path), "");
  EXPECT_THAT([&] { FolderLock(path, FolderOwner::here()); },
              ThrowsMessage<std::system_error>(HasSubstr("cannot lock '" + path)));
}

TEST(FolderLockTest, NamesTheFileThatCannotBeMade) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { FolderLock(folder.path() + "/none/lock", FolderOwner::here()); },
              ThrowsMessage<std::system_error>(HasSubstr("none/lock")));
}

}  // namespace
}  // namespace lockstep
