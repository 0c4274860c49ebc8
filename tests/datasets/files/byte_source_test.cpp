#include "lockstep/datasets/files/internal/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <string>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/datasets/files/compressed_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::gzip_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

/// Bytes that compress to about half, and are more than any buffer on the way holds.
std::string some_text() {
  std::mt19937 engine(1);
  std::string text(3'000'000, ' ');
  for (char& c : text) c = static_cast<char>('a' + engine() % 16);
  return text;
}

std::string read_all(const std::string& path, size_t at_once) {
  const auto source = open_byte_source(path);
  std::string text;
  for (;;) {
    std::string piece(at_once, '\0');
    const size_t got = source->read(piece.data(), piece.size());
    text += piece.substr(0, got);
    if (got < at_once) return text;
  }
}

class ByteSourceTest : public ::testing::Test {
 protected:
  /// Expects to read `text`, whatever the size of the pieces.
  void expect_text(const std::string& path, const std::string& text) const {
    for (const size_t at_once : {size_t{1'000'003}, text.size(), text.size() + 1, size_t{4} << 20})
      EXPECT_TRUE(read_all(path, at_once) == text) << path << " by " << at_once;
  }
  void expect_damaged(const std::string& path, const std::string& what) const {
    EXPECT_THAT([&] { read_all(path, 1 << 20); },
                ThrowsMessage<DataError>(HasSubstr(path + ": damaged " + what)));
  }
  const TemporaryFolder folder_;
  const std::string text_ = some_text();
};

TEST_F(ByteSourceTest, AFileThatIsNotCompressedIsReadAsItIs) {
  expect_text(folder_.write("plain", text_), text_);
  EXPECT_EQ(read_all(folder_.write("empty", ""), 10), "");
}

TEST_F(ByteSourceTest, GzipMembersAreReadOneAfterAnotherWhateverTheFilesName) {
  const std::string half = text_.substr(0, text_.size() / 2);
  const std::string rest = text_.substr(half.size());
  expect_text(folder_.write("a.gz", gzip_of(text_)), text_);
  expect_text(folder_.write("b", gzip_of(half) + gzip_of(rest)), text_);
}

/// Opening the pipe or the socket in the usual way would wait forever, or name no reason.
TEST_F(ByteSourceTest, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe.gz"), socket = folder.file("socket");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
  for (const auto& [path, kind] : {std::pair<std::string, std::string>{folder.path(), "a folder"},
                                   {pipe, "a named pipe"},
                                   {socket, "a socket"},
                                   {"/dev/zero", "a device"}}) {
    EXPECT_THAT([path = path] { open_byte_source(path); },
                ThrowsMessage<DataError>(path + ": expected a regular file, but it is " + kind));
  }
}

TEST_F(ByteSourceTest, DamagedGzipFilesAreRefused) {
  std::string bytes = gzip_of(text_);
  expect_damaged(folder_.write("short.gz", bytes.substr(0, bytes.size() / 2)),
                 "gzip file: it ends too early");
  expect_damaged(folder_.write("end.gz", bytes.substr(0, bytes.size() - 3)), "gzip file: it ends too early");
  bytes[bytes.size() - 6] ^= 1;  // of the checksum
  expect_damaged(folder_.write("sum.gz", bytes), "gzip file: ");
}

TEST_F(ByteSourceTest, ANameThatPromisesAnotherFormatIsRefused) {
  for (const std::string name : {"a.gz", "a.zst"}) {
    const auto path = folder_.write(name, "0\t1\n");
    EXPECT_THAT([&] { open_byte_source(path); }, ThrowsMessage<DataError>(HasSubstr(path + ": expected a")));
  }
}

#ifdef LOCKSTEP_TEST_ZSTD
TEST_F(ByteSourceTest, ZstdFramesAreReadOneAfterAnother) {
  const std::string half = text_.substr(0, text_.size() / 2);
  const std::string rest = text_.substr(half.size());
  expect_text(folder_.write("a.zst", testing::zstd_of(text_)), text_);
  expect_text(folder_.write("b", testing::zstd_of(half) + testing::zstd_of(rest)), text_);
}

TEST_F(ByteSourceTest, DamagedZstdFilesAreRefused) {
  std::string bytes = testing::zstd_of(text_);
  expect_damaged(folder_.write("short.zst", bytes.substr(0, bytes.size() / 2)),
                 "zstd file: it ends too early");
  expect_damaged(folder_.write("more.zst", bytes + "more than a frame"), "zstd file: ");
}
#else
TEST_F(ByteSourceTest, ABuildWithoutLibzstdSaysWhatItLacks) {
  const auto path = folder_.write("a.zst", "\x28\xb5\x2f\xfd and so on");
  EXPECT_THAT([&] { open_byte_source(path); }, ThrowsMessage<DataError>(HasSubstr("libzstd was not found")));
}
#endif

}  // namespace
}  // namespace lockstep
