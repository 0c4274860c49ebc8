#include "lockstep/runtime/base/files/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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

TEST(FolderLockTest, NamesTheFileThatCannotBeMade) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { FolderLock(folder.path() + "/none/lock", FolderOwner::here()); },
              ThrowsMessage<std::system_error>(HasSubstr("none/lock")));
}

}  // namespace
}  // namespace lockstep
