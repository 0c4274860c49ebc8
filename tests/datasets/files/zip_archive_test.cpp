#include "lockstep/datasets/files/internal/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <thread>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::make_raw_zip;
using ::testing::Property;
using testing::stored_entry;
using testing::TemporaryFolder;
using ::testing::Throws;

class ZipArchiveTest : public ::testing::Test {
 protected:
  std::string write(const Bytes& bytes) const { return folder_.write("archive.zip", bytes); }

  void expect_refused(const Bytes& bytes, const std::string& text) const {
    const std::string path = write(bytes);
    EXPECT_THAT(
        [&] { list_zip(path); },
        Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("archive.zip"), HasSubstr(text)))));
  }

  TemporaryFolder folder_;
};

/// A raw deflate stream of zeros, as a zip entry holds it.
Bytes deflate_zeros(size_t size) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  Bytes zeros(size);
  Bytes out(deflateBound(&stream, size));
  stream.next_in = zeros.data();
  stream.avail_in = static_cast<uInt>(zeros.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(ZipArchiveTest, ReadsWhatLibzipWrote) {
  const Bytes text(5000, 'a');
  const std::string path = write(
      testing::make_zip({{"train/", {}}, {"train/a.txt", text}, {"b.txt", testing::to_bytes("hello")}}));
  const std::vector<ZipEntry> entries = list_zip(path);
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "train/");
  EXPECT_EQ(entries[1].name, "train/a.txt");
  EXPECT_EQ(entries[1].size, 5000U);
  ZipReader reader(path);
  EXPECT_EQ(reader.read(entries[1]), text);
  EXPECT_EQ(reader.read(entries[2]), testing::to_bytes("hello"));
}

TEST_F(ZipArchiveTest, ReadsTruthfulHandMadeArchives) {
  // Shows that the archives below are refused for their defects and not for the way they are made.
  const std::string path = write(make_raw_zip({stored_entry("a/b.txt", testing::to_bytes("content"))}));
  const std::vector<ZipEntry> entries = list_zip(path);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(ZipReader(path).read(entries[0]), testing::to_bytes("content"));
}

TEST_F(ZipArchiveTest, ServesSeveralThreadsWithAReaderEach) {
  std::vector<testing::ArchiveFile> files;
  files.reserve(50);
  for (int i = 0; i < 50; ++i) files.push_back({std::to_string(i), Bytes(1000, static_cast<uint8_t>(i))});
  const std::string path = write(testing::make_zip(files));
  const std::vector<ZipEntry> entries = list_zip(path);
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> threads;
    threads.reserve(wrong.size());
    for (int& count : wrong) {
      threads.emplace_back([&] {
        ZipReader reader(path);
        for (size_t i = 0; i < entries.size(); ++i)
          count += reader.read(entries[i]) != files[i].bytes ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST_F(ZipArchiveTest, RefusesNamesThatLeaveTheFolder) {
  expect_refused(make_raw_zip({stored_entry("../evil.png", {1})}), "'..'");
  expect_refused(make_raw_zip({stored_entry("train/../../evil.png", {1})}), "'..'");
  expect_refused(make_raw_zip({stored_entry("train/..", {1})}), "'..'");
  expect_refused(make_raw_zip({stored_entry("/etc/evil.png", {1})}), "absolute name");
  expect_refused(make_raw_zip({stored_entry("train\\evil.png", {1})}), "backslash");
  expect_refused(make_raw_zip({stored_entry("C:evil.png", {1})}), "drive letter");
  expect_refused(make_raw_zip({stored_entry("train//evil.png", {1})}), "empty part");
  expect_refused(make_raw_zip({stored_entry("./evil.png", {1})}), "'.'");
}

TEST_F(ZipArchiveTest, RefusesLinksAndSpecialFiles) {
  testing::RawZipEntry link = stored_entry("train/link.png", testing::to_bytes("/etc/passwd"));
  link.unix_mode = 0120777;
  expect_refused(make_raw_zip({link}), "symbolic link");
  link.unix_mode = 0010644;
  expect_refused(make_raw_zip({link}), "special file");
}

TEST_F(ZipArchiveTest, RefusesDuplicateNames) {
  expect_refused(make_raw_zip({stored_entry("a.png", {1}), stored_entry("a.png", {2})}), "duplicate");
}

TEST_F(ZipArchiveTest, RefusesEncryptedEntries) {
  testing::RawZipEntry entry = stored_entry("a.png", Bytes(20));
  entry.is_encrypted = true;
  expect_refused(make_raw_zip({entry}), "encrypted");
}

TEST_F(ZipArchiveTest, RefusesBombs) {
  testing::RawZipEntry bomb = stored_entry("bomb.png", deflate_zeros(8 << 20));
  bomb.is_deflated = true;
  bomb.size = 8 << 20;
  expect_refused(make_raw_zip({bomb}), "compression ratio: expected at most 200");
  bomb.size = 4'000'000'000;
  expect_refused(make_raw_zip({bomb}), "size: expected at most 268435456 bytes, but got 4000000000");
}

TEST_F(ZipArchiveTest, NeverInflatesBeyondTheDeclaredSize) {
  testing::RawZipEntry bomb = stored_entry("bomb.png", deflate_zeros(8 << 20));
  bomb.is_deflated = true;
  bomb.size = 1000;
  const std::string path = write(make_raw_zip({bomb}));
  const std::vector<ZipEntry> entries = list_zip(path);
  EXPECT_THROW(ZipReader(path).read(entries.at(0)), DataError);
}

TEST_F(ZipArchiveTest, RefusesWhatIsNoArchive) {
  expect_refused({}, "empty");
  expect_refused(testing::to_bytes("this is a text and not an archive at all"),
                 "cannot open as a zip archive");
  EXPECT_THROW(list_zip(folder_.path() + "/missing.zip"), DataError);
  // The local entries are there, but the directory at the end is missing.
  Bytes archive = make_raw_zip({stored_entry("a.png", Bytes(100))});
  archive.resize(120);
  expect_refused(archive, "cannot open as a zip archive");
}

/// Opening a pipe in the usual way would wait forever.
TEST_F(ZipArchiveTest, RefusesWhatIsNoFile) {
  const std::string pipe = folder_.file("pipe.zip");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, kind] :
       {std::pair<std::string, std::string>{pipe, "a named pipe"}, {folder_.path(), "a folder"}}) {
    const std::string expected = path + ": expected a regular file, but it is " + kind;
    EXPECT_THAT([path = path] { list_zip(path); },
                Throws<DataError>(Property(&DataError::what, HasSubstr(expected))));
    EXPECT_THAT([path = path] { ZipReader reader(path); },
                Throws<DataError>(Property(&DataError::what, HasSubstr(expected))));
  }
}

TEST_F(ZipArchiveTest, RefusesEveryTruncation) {
  const Bytes archive = testing::make_zip({{"a.png", Bytes(50, 1)}, {"b.png", Bytes(60, 2)}});
  for (size_t length = 0; length < archive.size(); ++length) {
    const std::string path = write(Bytes(archive.begin(), archive.begin() + static_cast<ptrdiff_t>(length)));
    EXPECT_THROW(list_zip(path), DataError) << length << " bytes";
  }
}

TEST_F(ZipArchiveTest, NeverReturnsAWrongByteForAFlippedBit) {
  const Bytes content = testing::to_bytes("the content of the one file in here");
  const Bytes archive = testing::make_zip({{"a.png", content}});
  for (size_t position = 0; position < archive.size(); ++position) {
    Bytes damaged = archive;
    damaged[position] ^= static_cast<uint8_t>(1 << position % 8);
    const std::string path = write(damaged);
    try {
      const std::vector<ZipEntry> entries = list_zip(path);
      for (const ZipEntry& entry : entries) EXPECT_EQ(ZipReader(path).read(entry), content) << position;
    } catch (const DataError&) {
    }
  }
}

TEST_F(ZipArchiveTest, NamesAnArchiveThatChangedInBetween) {
  const std::string path = write(testing::make_zip({{"a.png", Bytes(50, 1)}}));
  const std::vector<ZipEntry> entries = list_zip(path);
  write(testing::make_zip({{"b.png", Bytes(50, 1)}}));
  EXPECT_THAT(
      [&] { ZipReader(path).read(entries.at(0)); },
      Throws<DataError>(Property(&DataError::what, HasSubstr("archive.zip/a.png: the archive has changed"))));
}

TEST_F(ZipArchiveTest, NamesAnEntryWithAWrongChecksum) {
  testing::RawZipEntry entry = stored_entry("a.png", Bytes(20, 7));
  entry.checksum ^= 1;
  const std::string path = write(make_raw_zip({entry}));
  const std::vector<ZipEntry> entries = list_zip(path);
  EXPECT_THAT([&] { ZipReader(path).read(entries.at(0)); },
              Throws<DataError>(Property(&DataError::what, AllOf(HasSubstr("a.png"), HasSubstr("CRC")))));
}

}  // namespace
}  // namespace lockstep
