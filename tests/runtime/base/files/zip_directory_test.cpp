#include "lockstep/runtime/base/files/internal/zip_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"

// state_file_python_test.py and state_file_test.cpp test archives written by Python and LibTorch.

namespace lockstep {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string little_endian(uint64_t value, size_t num_bytes) {
  std::string bytes;
  for (size_t i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// One record of a handmade archive, which may be wrong.
struct HandmadeRecord {
  std::string name;
  std::string content;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t size_unpacked = ~0ULL;  ///< the content's size by default
  int64_t shift = 0;               ///< added to the record's place in the directory
  std::string zip64 = "";          ///< numbers of the zip64 extra field, to which the other fields then refer
};

std::string handmade_zip(const std::vector<HandmadeRecord>& records) {
  std::string bytes;
  std::string directory;
  for (const auto& record : records) {
    const uint64_t begin = bytes.size() + static_cast<uint64_t>(record.shift);
    bytes += "PK\3\4" + std::string(22, '\0') + little_endian(record.name.size(), 2) + little_endian(3, 2) +
             record.name + "xyz" + record.content;
    const bool is_wide = !record.zip64.empty();
    const uint64_t size = record.content.size();
    const uint64_t unpacked = record.size_unpacked == ~0ULL ? size : record.size_unpacked;
    const std::string extra =
        is_wide ? little_endian(1, 2) + little_endian(record.zip64.size(), 2) + record.zip64 : "";
    directory += "PK\1\2\0\0\0\0"s + little_endian(record.flags, 2) + little_endian(record.method, 2) +
                 std::string(4, '\0') + little_endian(0x12345678, 4) +
                 little_endian(is_wide ? ~0ULL : size, 4) + little_endian(is_wide ? ~0ULL : unpacked, 4) +
                 little_endian(record.name.size(), 2) + little_endian(extra.size(), 2) +
                 std::string(10, '\0') + little_endian(is_wide ? ~0ULL : begin, 4) + record.name + extra;
  }
  return bytes + directory + "PK\5\6" + std::string(8, '\0') + little_endian(directory.size(), 4) +
         little_endian(bytes.size(), 4) + "\0\0"s;
}

std::map<std::string, ZipRecord> directory_of(const std::string& bytes) {
  const TemporaryFolder folder;
  const InputFile file(folder.write("archive.pt", bytes));
  return read_zip_directory(file);
}

std::string zip_refusal(const std::string& bytes) {
  return error_of<CheckpointError>([&] { directory_of(bytes); });
}

TEST(ZipDirectoryTest, TellsWhereRecordsLie) {
  const auto bytes = handmade_zip(
      {{.name = "a/data.pkl", .content = "pickle"}, {.name = "empty"}, {.name = "b", .content = "xx"}});
  const auto records = directory_of(bytes);
  ASSERT_EQ(records.size(), 3U);
  const auto& record = records.at("a/data.pkl");
  EXPECT_EQ(bytes.substr(record.begin, record.size), "pickle");
  EXPECT_EQ(record.crc32, 0x12345678U);
  EXPECT_TRUE(record.is_plain);
  EXPECT_EQ(records.at("empty").size, 0U);
}

TEST(ZipDirectoryTest, TellsCompressedAndEncryptedRecordsFromPlainOnes) {
  const auto records =
      directory_of(handmade_zip({{.name = "deflated", .content = "x", .method = 8, .size_unpacked = 1U << 30},
                                 {.name = "encrypted", .content = "x", .flags = 1}}));
  EXPECT_FALSE(records.at("deflated").is_plain);
  EXPECT_FALSE(records.at("encrypted").is_plain);
  EXPECT_EQ(records.at("deflated").size, 1U);
}

TEST(ZipDirectoryTest, ReadsNumbersOfZip64) {
  const auto numbers = little_endian(4, 8) + little_endian(4, 8) + little_endian(0, 8);
  const auto records = directory_of(handmade_zip({{.name = "a", .content = "data", .zip64 = numbers}}));
  EXPECT_EQ(records.at("a").size, 4U);
  EXPECT_EQ(records.at("a").begin, 30U + 1 + 3);
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .zip64 = numbers.substr(8)}})),
              HasSubstr("a number of zip64"));
  const auto huge = little_endian(~0ULL - 5, 8) + little_endian(~0ULL - 5, 8) + little_endian(0, 8);
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .zip64 = huge}})),
              HasSubstr("that go beyond"));
  const auto far = little_endian(4, 8) + little_endian(4, 8) + little_endian(~0ULL - 5, 8);
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .zip64 = far}})),
              HasSubstr("a place before the directory"));
}

TEST(ZipDirectoryTest, RefusesRecordsThatLie) {
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .size_unpacked = 5}})),
              HasSubstr("as many bytes stored"));
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .shift = 1}})),
              HasSubstr("a record where the directory says"));
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a", .content = "data", .shift = 1 << 20}})),
              HasSubstr("a place before the directory"));
  EXPECT_THAT(zip_refusal(handmade_zip({{.name = "a"}, {.name = "a"}})), HasSubstr("each name once"));
  const HandmadeRecord first{.name = "a", .content = "data"};
  EXPECT_THAT(zip_refusal(handmade_zip({first, {.name = "b", .content = "data", .shift = -38}})),
              HasSubstr("record 'b': expected bytes of its own"));
}

TEST(ZipDirectoryTest, RefusesWhatIsNoArchive) {
  for (const std::string& bytes :
       {""s, "PK\3\4"s, std::string(21, 'x'), std::string(100'000, 'P'), "PK\5\6"s + std::string(17, '\0')})
    EXPECT_THAT(zip_refusal(bytes), HasSubstr("zip directory: expected a zip archive"));
  EXPECT_TRUE(directory_of("PK\5\6"s + std::string(18, '\0')).empty());
  EXPECT_THAT(zip_refusal("PK\5\6"s + std::string(8, '\0') + "\xff\xff\xff\xff\xff\xff\xff\xff\0\0"s),
              HasSubstr("zip directory"));
}

TEST(ZipDirectoryTest, DamagedArchivesAreReadWithinTheFileOrRefused) {
  const auto whole = handmade_zip(
      {{.name = "a/data.pkl", .content = std::string(40, 'p')}, {.name = "a/data/0", .content = "tensor"}});
  std::mt19937_64 random(1);
  int num_refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = whole;
    for (uint64_t changes = random() % 3 + 1; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    try {
      uint64_t sum = 0;
      for (const auto& [name, record] : directory_of(bytes)) {
        ASSERT_LE(record.begin + record.size, bytes.size());
        sum += record.size;
      }
      ASSERT_LE(sum, bytes.size());
    } catch (const CheckpointError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 200);
}

}  // namespace
}  // namespace lockstep
