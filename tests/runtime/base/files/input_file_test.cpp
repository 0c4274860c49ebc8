#include "lockstep/runtime/base/files/internal/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(InputFileTest, ReadsAnyPlace) {
  const TemporaryFolder folder;
  const InputFile file(folder.write("data", "0123456789"));
  EXPECT_EQ(file.size(), 10U);
  std::string bytes(4, ' ');
  file.read(6, bytes.data(), 4);
  EXPECT_EQ(bytes, "6789");
  file.read(10, bytes.data(), 0);
}

TEST(InputFileTest, RefusesToReadBeyondTheEnd) {
  const TemporaryFolder folder;
  const InputFile file(folder.write("data", "0123456789"));
  char byte = 0;
  EXPECT_THAT(error_of<CheckpointError>([&] { file.read(10, &byte, 1); }),
              HasSubstr(file.path() + ": file size: expected at least 10 + 1 bytes, but got 10"));
  EXPECT_NE(error_of<CheckpointError>([&] { file.read(~0ULL, &byte, 1); }), "no error");
}

TEST(InputFileTest, AFileThatShrinksIsNoticed) {
  const TemporaryFolder folder;
  const InputFile file(folder.write("data", "0123456789"));
  std::filesystem::resize_file(file.path(), 5);
  std::string bytes(10, ' ');
  EXPECT_THAT(error_of<CheckpointError>([&] { file.read(0, bytes.data(), 10); }),
              HasSubstr("expected 10 bytes as when it was opened, but got 5"));
}

TEST(InputFileTest, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  const auto pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, kind] : {std::pair<std::string, std::string>{folder.file(""), "a folder"},
                                   {pipe, "a named pipe"},
                                   {"/dev/zero", "a device"}}) {
    EXPECT_EQ(error_of<CheckpointError>([&, &path = path] { const InputFile file(path); }),
              path + ": expected a regular file, but it is " + kind);
  }
  EXPECT_EQ(error_of<CheckpointError>([&] { const InputFile file(folder.file("absent")); }),
            folder.file("absent") + ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace lockstep
