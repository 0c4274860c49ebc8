#include "lockstep/datasets/parquet/parquet_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/datasets/parquet/parquet_files.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// Checks that the batch has these rows of write_numbered().
void expect_rows(const ParquetBatch& batch, const std::vector<size_t>& rows) {
  ASSERT_EQ(batch.size(), static_cast<int64_t>(rows.size()));
  std::vector<ParquetBatch> expected;
  for (const size_t row : rows) expected.push_back({numbered_rows(static_cast<int64_t>(row), 1)});
  if (rows.empty()) return;
  const ParquetBatch all = ParquetBatch::cat(expected);
  for (size_t column = 0; column < all.columns.size(); ++column) {
    EXPECT_TRUE(batch.columns[column].values.equal(all.columns[column].values)) << column;
    ASSERT_EQ(batch.columns[column].offsets.defined(), all.columns[column].offsets.defined());
    if (all.columns[column].offsets.defined()) {
      EXPECT_TRUE(batch.columns[column].offsets.equal(all.columns[column].offsets)) << column;
    }
  }
}

/// Three files of 100 rows, in natural order.
std::vector<std::string> write_three(const TemporaryFolder& folder) {
  const std::vector<std::string> paths{folder.file("day_2.parquet"), folder.file("day_9.parquet"),
                                       folder.file("day_10.parquet")};
  for (size_t i = 0; i < paths.size(); ++i)
    write_numbered(paths[i], 100 * static_cast<int64_t>(i), 100, 30 + static_cast<int64_t>(i));
  return paths;
}

TEST(ParquetDataset, HasTheRowsOfAllFilesInTheirOrder) {
  const TemporaryFolder folder;
  const auto paths = write_three(folder);
  const ParquetDataset dataset({.paths = {folder.file("day_*.parquet")}});
  EXPECT_EQ(dataset.size(), 300U);
  EXPECT_EQ(dataset.paths(), paths);
  EXPECT_EQ(dataset.columns(), numbered_columns());
  EXPECT_THAT(dataset.chunk_sizes(), ElementsAre(30, 30, 30, 10, 31, 31, 31, 7, 32, 32, 32, 4));
  std::vector<size_t> all(300);
  std::iota(all.begin(), all.end(), size_t{0});
  expect_rows(dataset.get_batch(all), all);
  expect_rows(dataset.get_batch({299, 0, 100, 100, 131, 5}), {299, 0, 100, 100, 131, 5});
  expect_rows(dataset.get_batch({}), {});
  EXPECT_EQ(dataset.get_batch({}).columns[1].values.sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_THROW(dataset.get_batch({300}), std::invalid_argument);
  const ParquetPlace place = dataset.place_of(165);
  EXPECT_EQ(place.path, paths[1]);
  EXPECT_EQ(place.row_group, 2);
  EXPECT_EQ(place.row, 3);
}

// A range of a dataset's rows may begin or end within a row group, and its order then has fewer numbers.
TEST(ParquetDataset, IgnoresAnOrderOfAPartOfARowGroup) {
  const TemporaryFolder folder;
  write_numbered(folder.file("a.parquet"), 0, 60, 20);
  const auto order_within = [](size_t chunk) {
    auto order = std::make_shared<std::vector<uint32_t>>(chunk == 2 ? 7 : 20);
    std::iota(order->rbegin(), order->rend(), uint32_t{0});
    return std::shared_ptr<const std::vector<uint32_t>>(std::move(order));
  };
  std::vector<size_t> all(60);
  std::iota(all.begin(), all.end(), size_t{0});
  for (int attempt = 0; attempt < 20; ++attempt) {  // decoded ahead or not
    const ParquetDataset dataset({.paths = {folder.path()}});
    dataset.prefetch_chunks({2, 1, 0}, order_within);
    expect_rows(dataset.get_batch(all), all);
  }
}

TEST(ParquetDataset, KeepsItsRowGroupsWithinTheMemoryLimit) {
  const TemporaryFolder folder;
  write_three(folder);
  const ParquetFile file({.path = folder.file("day_10.parquet")});
  const int64_t largest = file.decoded_bytes(2);
  std::mt19937_64 random(1);
  // A sixth of the limit is set aside, and the bytes of a row group; lanes have half of the rest.
  for (const auto& [groups, lanes] :
       std::vector<std::pair<int64_t, size_t>>{{1, 1}, {2, 1}, {5, 1}, {8, 2}}) {
    const ParquetDataset dataset({.paths = {folder.path()}, .memory_limit = groups * largest + 1});
    EXPECT_EQ(dataset.max_open_chunks(), lanes);
    for (int step = 0; step < 20; ++step) {
      std::vector<size_t> indices(16);
      for (size_t& index : indices) index = random() % 300;
      expect_rows(dataset.get_batch(indices), indices);
      dataset.prefetch_chunks({random() % 12, random() % 12});
    }
    EXPECT_LE(dataset.peak_memory(), groups * largest + 1);
  }
  EXPECT_THAT(message_of<DataError>(
                  [&] { ParquetDataset dataset({.paths = {folder.path()}, .memory_limit = largest - 1}); }),
              HasSubstr("day_10.parquet: row group 0: expected at most " + std::to_string(largest - 1) +
                        " bytes, the memory limit, but got " + std::to_string(largest)));
}

TEST(ParquetDataset, LeavesOutUnreadableRowGroupsOnRequestAndCountsThem) {
  const TemporaryFolder folder;
  const auto paths = write_three(folder);
  // Damages the second row group of day_9: its first page is somewhere in the middle of the first third.
  std::string bytes;
  {
    std::ifstream stream(paths[1], std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  size_t damaged = 0;
  for (size_t at = bytes.size() / 5; damaged == 0 && at < bytes.size() / 2; at += 7) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    folder.write("day_9.parquet", flipped);
    const ParquetFile file({.path = paths[1]});
    try {
      for (int group = 0; group < 4; ++group) file.read_row_group(group);
    } catch (const DataError&) {
      damaged = at;
    }
  }
  ASSERT_GT(damaged, 0U);
  std::vector<std::string> messages;
  const ParquetDataset dataset({.paths = {folder.path()},
                                .skips_unreadable = true,
                                .on_message = [&](const std::string& line) { messages.push_back(line); }});
  ASSERT_EQ(dataset.num_skipped_row_groups(), 1);
  EXPECT_EQ(static_cast<int64_t>(*dataset.size()), 300 - dataset.num_skipped_rows());
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_THAT(messages[0], HasSubstr("left out " + std::to_string(dataset.num_skipped_rows()) +
                                     " rows: " + paths[1] + ": row group "));
  std::vector<size_t> all(*dataset.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const ParquetBatch batch = dataset.get_batch(all);
  EXPECT_EQ(batch.columns[0].values.numel(), static_cast<int64_t>(all.size()));
  // Without the request, the batch with the damaged rows says where they are.
  const ParquetDataset strict({.paths = {folder.path()}});
  std::vector<size_t> every(300);
  std::iota(every.begin(), every.end(), size_t{0});
  EXPECT_THAT(message_of<DataError>([&] { strict.get_batch(every); }), HasSubstr(paths[1] + ": row group "));
}

TEST(ParquetDataset, RefusesAFileWithOtherColumns) {
  const TemporaryFolder folder;
  write_three(folder);
  const auto write_other = [&](const std::vector<ParquetColumn>& columns) {
    ParquetWriter writer({.path = folder.file("day_11.parquet"), .columns = columns});
    std::vector<ParquetValues> values;
    for (const ParquetColumn& column : columns)
      values.push_back({.values = at::zeros({3}, column.type), .offsets = {}});
    writer.append(values);
    writer.close();
  };
  const auto refusal = [&](std::vector<std::string> columns) {
    return message_of<DataError>(
        [&] { ParquetDataset dataset({.paths = {folder.path()}, .columns = std::move(columns)}); });
  };
  write_other({{.name = "number", .type = at::kFloat}});
  EXPECT_THAT(refusal({"number"}), HasSubstr("day_11.parquet: column 'number': expected Long as in " +
                                             folder.file("day_2.parquet") + ", but got Float"));
  EXPECT_THAT(refusal({"number", "bag"}),
              HasSubstr("day_11.parquet: columns: expected one named 'bag', but got number"));
  // A schema that grew.
  std::filesystem::remove(folder.file("day_11.parquet"));
  write_numbered(folder.file("day_11.parquet"), 300, 3, 3);
  EXPECT_EQ(ParquetDataset({.paths = {folder.path()}}).size(), 303U);
  std::filesystem::remove(folder.file("day_11.parquet"));
  write_other({{.name = "number", .type = at::kLong}, {.name = "new", .type = at::kLong}});
  EXPECT_THAT(refusal({}), HasSubstr("day_11.parquet: column 'new' is not in " +
                                     folder.file("day_2.parquet") + "; name the columns to read"));
  EXPECT_EQ(ParquetDataset({.paths = {folder.path()}, .columns = {"number"}}).size(), 303U);
}

TEST(ParquetDataset, TellsApartOtherFiles) {
  const TemporaryFolder folder;
  write_three(folder);
  const std::string all = ParquetDataset({.paths = {folder.path()}}).identity();
  EXPECT_THAT(all, HasSubstr("Parquet files of 300 rows in 12 row groups"));
  EXPECT_EQ(ParquetDataset({.paths = {folder.path()}, .memory_limit = 10'000}).identity(), all);
  EXPECT_NE(ParquetDataset({.paths = {folder.path()}, .columns = {"number"}}).identity(), all);
  EXPECT_NE(ParquetDataset({.paths = {folder.path()}, .null_fill = 3}).identity(), all);
  // Other row groups of the same number and sizes.
  const auto with = [&](double number) {
    return ParquetDataset({.paths = {folder.path()}, .row_groups_with = {{"number", {number, number}}}})
        .identity();
  };
  EXPECT_EQ(with(5), with(6));
  EXPECT_NE(with(5), with(35));
  write_numbered(folder.file("day_9.parquet"), 100, 100, 50);
  EXPECT_NE(ParquetDataset({.paths = {folder.path()}}).identity(), all);
}

TEST(ParquetDataset, LeavesOutRowGroupsThatHaveNoRowInARange) {
  const TemporaryFolder folder;
  write_three(folder);
  const auto rows_with = [&](const ParquetRange& range, const std::string& column = "number") {
    const ParquetDataset dataset(
        {.paths = {folder.path()}, .columns = {"bag", "number"}, .row_groups_with = {{column, range}}});
    std::vector<size_t> all(*dataset.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const at::Tensor numbers = dataset.get_batch(all).columns.at(1).values;
    return std::vector<int64_t>(numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + numbers.numel());
  };
  // Row groups of 30 rows, of 31, and of 32, in files of 100 rows.
  const auto some = rows_with({.least = 95, .most = 130});
  std::vector<int64_t> expected(41);
  std::iota(expected.begin(), expected.end(), 90);
  EXPECT_EQ(some, expected);
  EXPECT_EQ(rows_with({}).size(), 300U);
  EXPECT_EQ(rows_with({.most = 29}).size(), 30U);
  EXPECT_EQ(rows_with({.least = 30, .most = 30}).front(), 30);
  EXPECT_THAT(message_of<DataError>([&] { rows_with({}, "none"); }), HasSubstr("expected a column 'none'"));
  EXPECT_THAT(
      message_of<DataError>([&] { rows_with({.least = 300}); }),
      HasSubstr("expected rows in the ranges of row_groups_with, but no row group of 3 files has any"));
}

TEST(ParquetDataset, RefusesInvalidOptions) {
  const TemporaryFolder folder;
  write_three(folder);
  EXPECT_THROW(ParquetDataset({.paths = {folder.path()}, .memory_limit = 0}), std::invalid_argument);
  EXPECT_THROW(ParquetDataset({.paths = {folder.path()}, .lanes = -1}), std::invalid_argument);
  EXPECT_THROW(ParquetDataset({.paths = {}}), std::invalid_argument);
  EXPECT_THROW(ParquetDataset({.paths = {folder.file("none_*.parquet")}}), DataError);
}

}  // namespace
}  // namespace lockstep
