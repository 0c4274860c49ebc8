#include "lockstep/runtime/base/files/internal/replaced_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <string>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(ReplacedFileTest, TakesItsPlaceOnlyWhenCommitted) {
  const TemporaryFolder folder;
  const auto path = folder.write("weights", "old");
  {
    ReplacedFile file(path);
    file.write("new", 3);
    EXPECT_EQ(bytes_of(path), "old");
    file.write("est", 3);
    file.commit();
    EXPECT_EQ(bytes_of(path), "newest");
  }
  EXPECT_EQ(bytes_of(path), "newest");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(ReplacedFileTest, WithoutCommitTheOldFileStaysAlone) {
  const TemporaryFolder folder;
  const auto path = folder.write("weights", "old");
  ReplacedFile(path).write("new", 3);
  EXPECT_EQ(bytes_of(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(ReplacedFileTest, TwoWritersOfOnePathLeaveOneOfTheirFilesWhole) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights");
  ReplacedFile first(path);
  ReplacedFile second(path);
  first.write("first", 5);
  second.write("2nd", 3);
  second.commit();
  first.commit();
  EXPECT_EQ(bytes_of(path), "first");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(ReplacedFileTest, WhatTheSystemRefusesIsNamed) {
  const TemporaryFolder folder;
  const auto absent = folder.file("absent/weights");
  EXPECT_EQ(error_of<std::system_error>([&] { const ReplacedFile file(absent); }),
            "cannot write " + absent + ": No such file or directory");
}

TEST(ReplacedFileTest, FoldersAndDevicesAreNotReplaced) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder.file(""), std::string("/dev/null")}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { const ReplacedFile file(path); }),
                HasSubstr(path + ": expected a regular file or none"));
  }
}

/// A limit on file sizes simulates a full disk.
TEST(ReplacedFileTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  const auto path = folder.write("weights", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string bytes(10'000, 'x');
  const auto message = error_of<std::system_error>([&] {
    ReplacedFile file(path);
    file.write(bytes.data(), bytes.size());
    file.commit();
  });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(message, "cannot write " + path + ": File too large");
  EXPECT_EQ(bytes_of(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(ReplacedFileTest, NewFilesHaveTheUsualPermissions) {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(022);
  ReplacedFile file(folder.file("weights"));
  file.commit();
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(folder.file("weights").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
}

}  // namespace
}  // namespace lockstep
