#include "lockstep/datasets/parquet/internal/row_gatherer.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>
#include <random>

#include "lockstep/datasets/parquet/parquet_batch.h"

namespace lockstep {
namespace {

/// Random values of rows in columns of all widths and shapes.
std::vector<ParquetValues> random_group(std::mt19937_64& random, int64_t rows) {
  std::vector<ParquetValues> columns;
  for (const auto type :
       {torch::kBool, torch::kShort, torch::kInt, torch::kLong, torch::kFloat, torch::kDouble}) {
    columns.push_back({.values = torch::randint(0, 2, {rows}).to(type) * 3, .offsets = {}});
    columns.push_back({.values = torch::randint(0, 100, {rows, 3}).to(type), .offsets = {}});
  }
  for (const auto type : {torch::kByte, torch::kInt, torch::kDouble}) {
    std::vector<int64_t> offsets{0};
    for (int64_t i = 0; i < rows; ++i) offsets.push_back(offsets.back() + static_cast<int64_t>(random() % 4));
    columns.push_back({.values = torch::randint(0, 100, {offsets.back()}).to(type),
                       .offsets = torch::tensor(offsets, torch::kLong)});
  }
  return columns;
}

/// Returns a row of a column as a tensor of its own.
torch::Tensor row_of(const ParquetValues& column, int64_t row) {
  if (!column.offsets.defined()) return column.values[row];
  return column.values.slice(0, column.offsets[row].item<int64_t>(), column.offsets[row + 1].item<int64_t>());
}

TEST(RowGatherer, PutsRowsOfRowGroupsWhereTheyBelong) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 40; ++trial) {
    const int64_t num_groups = 1 + trial % 3;
    std::vector<std::vector<ParquetValues>> groups;
    std::vector<int64_t> sizes;
    for (int64_t group = 0; group < num_groups; ++group) {
      sizes.push_back(static_cast<int64_t>(1 + random() % 9));
      groups.push_back(random_group(random, sizes.back()));
    }
    const int64_t count = 1 + static_cast<int64_t>(random() % 12);
    std::vector<int64_t> group_of, row_in_group;
    std::vector<std::vector<int64_t>> rows(groups.size()), places(groups.size());
    for (int64_t place = 0; place < count; ++place) {
      const auto group = static_cast<size_t>(random() % groups.size());
      // Half of the trials ask for runs of rows.
      const auto row = trial % 2 ? place % sizes[group]
                                 : static_cast<int64_t>(random() % static_cast<uint64_t>(sizes[group]));
      group_of.push_back(static_cast<int64_t>(group));
      row_in_group.push_back(row);
      rows[group].push_back(row);
      places[group].push_back(place);
    }
    RowGatherer gatherer(count);
    for (size_t group = 0; group < groups.size(); ++group)
      if (!rows[group].empty()) gatherer.add(groups[group], rows[group], places[group]);
    const auto columns = gatherer.finish();
    ASSERT_EQ(columns.size(), groups[0].size());
    for (size_t column = 0; column < columns.size(); ++column) {
      ASSERT_EQ(num_rows(columns[column]), count);
      for (int64_t place = 0; place < count; ++place) {
        const auto& from = groups[static_cast<size_t>(group_of[static_cast<size_t>(place)])][column];
        EXPECT_TRUE(
            row_of(columns[column], place).equal(row_of(from, row_in_group[static_cast<size_t>(place)])));
      }
    }
  }
}

TEST(ParquetBatch, IsCutJoinedAndSelectedByRows) {
  std::mt19937_64 random(2);
  const ParquetBatch batch{random_group(random, 8)};
  EXPECT_EQ(batch.size(), 8);
  const ParquetBatch joined = ParquetBatch::cat({batch.slice(0, 3), batch.slice(3, 3), batch.slice(3, 8)});
  const ParquetBatch selected = batch.select(torch::tensor({7, 0, 0, 5}, torch::kLong));
  const ParquetBatch cut = batch.slice(2, 6);
  EXPECT_THROW(batch.select(torch::tensor({8}, torch::kLong)), std::invalid_argument);
  EXPECT_THROW(batch.select(torch::tensor({-1}, torch::kLong)), std::invalid_argument);
  EXPECT_EQ(batch.slice(4, 4).size(), 0);
  ASSERT_EQ(joined.size(), 8);
  ASSERT_EQ(selected.size(), 4);
  ASSERT_EQ(cut.size(), 4);
  const std::vector<int64_t> rows{7, 0, 0, 5};
  for (size_t column = 0; column < batch.columns.size(); ++column) {
    const ParquetValues& from = batch.columns[column];
    for (int64_t row = 0; row < 8; ++row)
      EXPECT_TRUE(row_of(joined.columns[column], row).equal(row_of(from, row)));
    for (int64_t place = 0; place < 4; ++place) {
      EXPECT_TRUE(
          row_of(selected.columns[column], place).equal(row_of(from, rows[static_cast<size_t>(place)])));
      EXPECT_TRUE(row_of(cut.columns[column], place).equal(row_of(from, 2 + place)));
    }
  }
}

}  // namespace
}  // namespace lockstep
