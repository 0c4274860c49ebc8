#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/stores/internal/arrow_source.h"
#include "lockstep/datasets/stores/internal/open_file_pool.h"
#include "lockstep/tests/datasets/parquet/parquet_files.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// Lets the process have so many descriptors while it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limited{.rlim_cur = most, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limited), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

int64_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

std::string numbered_path(const TemporaryFolder& folder, int64_t file) {
  return folder.file("part_" + std::to_string(file) + ".parquet");
}

/// File i has rows 3 i to 3 i + 2 of write_numbered().
void write_parts(const TemporaryFolder& folder, int64_t files) {
  for (int64_t i = 0; i < files; ++i) write_numbered(numbered_path(folder, i), 3 * i, 3, 3);
}

/// Returns every seventh row, and the others, so that files are read in another order than they are opened.
std::vector<size_t> scattered(size_t rows) {
  std::vector<size_t> indices;
  for (size_t first = 0; first < 7; ++first)
    for (size_t row = first; row < rows; row += 7) indices.push_back(row);
  return indices;
}

TEST(ManyParquetFiles, AreReadWithFewerDescriptorsThanFiles) {
  constexpr int64_t kFiles = 2000;
  constexpr rlim_t kDescriptors = 256;
  const TemporaryFolder folder;
  write_parts(folder, kFiles);
  const int64_t before = num_descriptors();
  const DescriptorLimit limit(kDescriptors);
  {
    // Too little memory for all row groups, so that files are read again.
    const ParquetDataset dataset({.paths = {folder.path()}, .memory_limit = 20'000, .threads = 2});
    ASSERT_EQ(dataset.size(), static_cast<size_t>(3 * kFiles));
    for (const std::vector<size_t>& wanted : {scattered(3 * kFiles), scattered(300)}) {
      const at::Tensor numbers = dataset.get_batch(wanted).columns.front().values;
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_EQ(numbers.const_data_ptr<int64_t>()[i], static_cast<int64_t>(wanted[i]));
    }
    EXPECT_GT(dataset.num_decoded_row_groups(), kFiles);
    EXPECT_LE(num_descriptors(), before + static_cast<int64_t>(kMostOpenFiles));
  }
  EXPECT_EQ(num_descriptors(), before);
}

TEST(ManyParquetFiles, AreRefusedByNameIfTheyVanishOrChangeBeforeTheyAreOpenedAgain) {
  constexpr int64_t kFiles = 2 * kMostOpenFiles;
  const TemporaryFolder folder;
  write_parts(folder, kFiles);
  const ParquetDataset dataset({.paths = {folder.path()}});
  const auto error_of_file = [&](int64_t file) {
    return message_of<DataError>([&] { dataset.get_batch({static_cast<size_t>(3 * file)}); });
  };
  // The files before these are not open any more, whichever order they were opened in.
  for (int64_t i = kMostOpenFiles; i < kFiles; ++i) dataset.get_batch({static_cast<size_t>(3 * i)});
  std::filesystem::remove(numbered_path(folder, 0));
  EXPECT_THAT(error_of_file(0), HasSubstr(numbered_path(folder, 0) + ": cannot open: No such file"));
  write_numbered(numbered_path(folder, 1), 7, 3, 3);  // another time, if not another size
  EXPECT_THAT(error_of_file(1), HasSubstr(numbered_path(folder, 1) + ": the file has changed"));
  std::filesystem::remove(numbered_path(folder, 2));
  std::filesystem::create_directory(numbered_path(folder, 2));
  EXPECT_THAT(error_of_file(2), HasSubstr(numbered_path(folder, 2) + ": expected a regular file"));
  EXPECT_EQ(dataset.get_batch({9}).columns.front().values.item<int64_t>(), 9);
}

// Not even if damaged rows may be left out.
TEST(ManyParquetFiles, AreNotLeftOutIfTheyVanish) {
  constexpr int64_t kFiles = 2 * kMostOpenFiles;
  const TemporaryFolder folder;
  write_parts(folder, kFiles);
  // The first row group is damaged, which is said before the other files are read.
  write_numbered(numbered_path(folder, 0), 0, 3, 1);
  std::string bytes;
  {
    std::ifstream stream(numbered_path(folder, 0), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  for (size_t at = 4; at < 60; ++at) bytes[at] = static_cast<char>(~bytes[at]);
  folder.write("part_0.parquet", bytes);
  const auto open = [&](int64_t removed) {
    std::vector<std::string> left_out;
    const ParquetDataset dataset(
        {.paths = {folder.path()}, .skips_unreadable = true, .on_message = [&](const std::string& line) {
           left_out.push_back(line);
           if (removed >= 0) std::filesystem::remove(numbered_path(folder, removed));
         }});
    EXPECT_EQ(left_out.size(), 1U);
    return *dataset.size();
  };
  EXPECT_EQ(open(-1), static_cast<size_t>(3 * kFiles - 1));
  // Opened among the first, and thus not among those that are still open.
  EXPECT_THAT(message_of<DataError>([&] { open(1); }), HasSubstr(numbered_path(folder, 1) + ": cannot open"));
}

TEST(ManyParquetFiles, OfWhichSeveralAreBadShowTheErrorOfTheFirst) {
  const TemporaryFolder folder;
  write_parts(folder, 60);
  // The first is the slowest to be refused: the others are refused before anything is read.
  ParquetWriter writer(
      {.path = numbered_path(folder, 20), .columns = {{.name = "other", .type = at::kLong}}});
  writer.append({{.values = at::arange(100'000), .offsets = {}}});
  writer.close();
  for (int64_t i = 21; i < 60; ++i) folder.write("part_" + std::to_string(i) + ".parquet", "");
  for (int attempt = 0; attempt < 20; ++attempt)
    EXPECT_THAT(message_of<DataError>([&] { ParquetDataset dataset({.paths = {folder.path()}}); }),
                HasSubstr(numbered_path(folder, 20) + ": column 'other' is not in"));
}

TEST(ManyParquetFiles, MayHaveTheirColumnsInAnyOrder) {
  const TemporaryFolder folder;
  write_parts(folder, 1);
  std::vector<ParquetColumn> columns = numbered_columns();
  std::vector<ParquetValues> values = numbered_rows(3, 3);
  std::rotate(columns.begin(), columns.begin() + 1, columns.end());
  std::rotate(values.begin(), values.begin() + 1, values.end());
  ParquetWriter writer({.path = numbered_path(folder, 1), .columns = columns});
  writer.append(values);
  writer.close();
  const ParquetDataset dataset({.paths = {folder.path()}});
  EXPECT_EQ(dataset.columns(), numbered_columns());
  const ParquetBatch batch = dataset.get_batch({0, 1, 2, 3, 4, 5});
  const std::vector<ParquetValues> expected = numbered_rows(0, 6);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(batch.columns[i].values.equal(expected[i].values)) << i;
    if (expected[i].offsets.defined()) {
      EXPECT_TRUE(batch.columns[i].offsets.equal(expected[i].offsets)) << i;
    }
  }
}

TEST(OpenFilePools, KeepTheFilesThatWereUsedLast) {
  const TemporaryFolder folder;
  OpenFilePool pool(2);
  std::vector<std::weak_ptr<const OpenFile>> files;
  const auto open = [&](const std::string& name) {
    folder.write(name, name);
    files.push_back(pool.used(std::make_shared<const OpenFile>(folder.file(name))));
  };
  open("a");
  open("b");
  pool.used(files[0].lock());
  open("c");
  EXPECT_TRUE(files[1].expired());
  ASSERT_FALSE(files[0].expired());
  EXPECT_EQ(pool.size(), 2U);
  pool.drop(files[0].lock());
  pool.drop(nullptr);
  EXPECT_TRUE(files[0].expired());
  EXPECT_FALSE(files[2].expired());
  EXPECT_EQ(pool.size(), 1U);
}

}  // namespace
}  // namespace lockstep
