#include "lockstep/runtime/base/files/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <system_error>

#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::read_text;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;
using testing::write_text;

TEST(OutputFileTest, HasWrittenWhenAppendReturns) {
  const TemporaryFolder folder;
  OutputFile file(folder.path() + "/log");
  file.append("one\n");
  EXPECT_EQ(read_text(file.path()), "one\n");
  file.append("two\n");
  EXPECT_EQ(read_text(file.path()), "one\ntwo\n");
}

TEST(OutputFileTest, OverwritesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  write_text(path, "theirs");
  EXPECT_THAT([&] { OutputFile file(path); },
              ThrowsMessage<std::system_error>(AllOf(HasSubstr("cannot create"), HasSubstr(path))));
  EXPECT_EQ(read_text(path), "theirs");
}

TEST(OutputFileTest, KeepsWholeRecordsOnAFullDiskAndGoesOnAfterwards) {
  const TemporaryFolder folder;
  OutputFile file(folder.path() + "/log");
  file.append("12345678");
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT([&] { file.append("abcdefgh"); }, ThrowsMessage<std::system_error>(AllOf(
                                                      HasSubstr("cannot write to"), HasSubstr(file.path()))));
    EXPECT_EQ(read_text(file.path()), "12345678");
  }
  file.append("ABC");
  EXPECT_EQ(read_text(file.path()), "12345678ABC");
}

TEST(ReplaceFileTest, PutsNewContentInTheOldPlace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report";
  replace_file(path, "first");
  EXPECT_EQ(read_text(path), "first");
  replace_file(path, "second");
  EXPECT_EQ(read_text(path), "second");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("report"));
}

TEST(ReplaceFileTest, KeepsTheOldContentOnAFullDiskAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report";
  replace_file(path, "old");
  const FileSizeLimit limit(5);
  EXPECT_THAT([&] { replace_file(path, "much longer"); },
              ThrowsMessage<std::system_error>(HasSubstr("cannot write '" + path + "'")));
  EXPECT_EQ(read_text(path), "old");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("report"));
}

TEST(ReplaceFileTest, LeavesNothingBesideAFolderItCannotReplace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report";
  std::filesystem::create_directory(path);
  EXPECT_THROW(replace_file(path, "text"), std::system_error);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("report"));
  EXPECT_THAT(names_in(path), IsEmpty());
}

}  // namespace
}  // namespace lockstep
