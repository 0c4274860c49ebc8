#include "lockstep/runtime/base/files/internal/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

/// Makes the file of a Unix socket, which nobody listens on.
void make_socket(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(socket);
}

TEST(RegularFileTest, ReadsItsBytes) {
  const TemporaryFolder folder;
  const RegularFile file(folder.write("data", "0123456789"));
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(file.read_start(100), "0123456789");
  EXPECT_EQ(file.read_start(3), "012");
  std::string bytes(4, ' ');
  EXPECT_EQ(file.read_at(8, bytes.data(), bytes.size()), 2U);
  EXPECT_EQ(bytes, "89  ");
}

/// Opening the pipe in the usual way would wait forever.
TEST(RegularFileTest, RefusesAnythingElseByName) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe"), socket = folder.file("socket");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  make_socket(socket);
  const std::vector<std::pair<std::string, std::string>> others{
      {folder.path(), "a folder"}, {pipe, "a named pipe"}, {socket, "a socket"}, {"/dev/zero", "a device"}};
  for (const auto& [path, kind] : others) {
    EXPECT_THAT([path = path] { const RegularFile file(path); },
                ThrowsMessage<NotARegularFile>(path + ": expected a regular file, but it is " + kind));
  }
  EXPECT_THAT([&] { const RegularFile file(folder.file("absent")); },
              ThrowsMessage<std::system_error>(HasSubstr("cannot open '" + folder.file("absent"))));
}

TEST(RegularFileTest, FollowsLinksOnlyIfTheyAreAllowed) {
  const TemporaryFolder folder;
  const std::string link = folder.file("link");
  std::filesystem::create_symlink(folder.write("data", "x"), link);
  EXPECT_EQ(RegularFile(link).size(), 1U);
  EXPECT_THAT([&] { const RegularFile file(link, Links::kRefused); },
              ThrowsMessage<NotARegularFile>(link + ": expected a regular file, but it is a symbolic link"));
}

struct ReadLine {
  std::string text;
  bool is_cut;
  bool is_whole;
  bool operator==(const ReadLine&) const = default;
};

std::vector<ReadLine> lines_of(const std::string& bytes, size_t longest) {
  const TemporaryFolder folder;
  const RegularFile file(folder.write("lines", bytes));
  LineReader lines(file, longest);
  std::vector<ReadLine> read;
  while (lines.next()) read.push_back({lines.line(), lines.is_cut(), lines.is_whole()});
  EXPECT_FALSE(lines.next());
  return read;
}

TEST(LineReaderTest, CutsLongLinesAndMarksAnUnfinishedOne) {
  EXPECT_THAT(lines_of("", 4), ElementsAre());
  EXPECT_THAT(
      lines_of("ab\n\nabcd\nabcde\nx", 4),
      ElementsAre(ReadLine{"ab", false, true}, ReadLine{"", false, true}, ReadLine{"abcd", false, true},
                  ReadLine{"abcd", true, true}, ReadLine{"x", false, false}));
}

/// Lines around the size of its buffer, 64 KiB.
TEST(LineReaderTest, JoinsLinesAcrossItsBuffer) {
  for (const size_t size : {65'534, 65'535, 65'536, 65'537, 200'000}) {
    const std::string line(size, 'x');
    EXPECT_THAT(lines_of(line + "\ny\n", 1 << 20),
                ElementsAre(ReadLine{line, false, true}, ReadLine{"y", false, true}));
  }
}

TEST(LineReaderTest, TakesNoMemoryForALongLine) {
  const TemporaryFolder folder;
  const RegularFile file(folder.write("line", ""));
  std::filesystem::resize_file(file.path(), uint64_t{32} << 20);  // a hole of zero bytes
  const uint64_t bytes = testing::peak_memory_of([&] {
    LineReader lines(file, 1000);
    return lines.next() && lines.is_cut() && lines.line().size() == 1000;
  });
  EXPECT_LT(bytes, uint64_t{4} << 20);
}

}  // namespace
}  // namespace lockstep
