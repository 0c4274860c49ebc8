#include "lockstep/datasets/parquet/parquet_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "lockstep/tests/datasets/parquet/parquet_files.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(ParquetWriter, WritesWhatParquetFileReads) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.parquet");
  for (const std::string compression : {"none", "snappy", "gzip", "lz4", "zstd"}) {
    ParquetWriter writer(
        {.path = path, .columns = numbered_columns(), .rows_per_group = 12, .compression = compression});
    for (const auto& [first, count] :
         {std::pair{0, 5}, std::pair{5, 0}, std::pair{5, 30}, std::pair{35, 1}}) {
      auto rows = numbered_rows(first, count);
      writer.append(rows);
      for (ParquetValues& column : rows) column.values.fill_(99);  // the caller's again
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.close();
    const ParquetFile file({.path = path});
    EXPECT_EQ(file.columns(), numbered_columns());
    ASSERT_EQ(file.num_row_groups(), 3);
    for (int group = 0; group < 3; ++group) {
      const auto read = file.read_row_group(group);
      const auto written = numbered_rows(12 * group, 12);
      for (size_t column = 0; column < written.size(); ++column) {
        EXPECT_TRUE(read[column].values.equal(written[column].values))
            << compression << ", column " << column;
        ASSERT_EQ(read[column].offsets.defined(), written[column].offsets.defined());
        if (written[column].offsets.defined()) {
          EXPECT_TRUE(read[column].offsets.equal(written[column].offsets));
        }
      }
    }
    std::filesystem::remove(path);
  }
}

TEST(ParquetFile, ReadsARowGroupInAnyOrder) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.parquet");
  write_numbered(path, 0, 40, 30);
  const ParquetFile file({.path = path});
  const at::Tensor permutation = at::randperm(30, at::kLong);
  std::vector<uint32_t> order;
  for (int64_t i = 0; i < 30; ++i) order.push_back(static_cast<uint32_t>(permutation[i].item<int64_t>()));
  const auto rows = file.read_row_group(0, order);
  EXPECT_TRUE(rows[0].values.equal(permutation));
  EXPECT_TRUE(rows[1].values.equal(numbered_rows(0, 30)[1].values.index_select(0, permutation)));
  const at::Tensor lengths = permutation.remainder(4);
  EXPECT_TRUE(rows[2].values.equal(at::repeat_interleave(permutation, lengths).to(at::kInt)));
  EXPECT_TRUE(rows[2].offsets.slice(0, 1).equal(lengths.cumsum(0)));

  for (const std::vector<uint32_t>& wrong : {std::vector<uint32_t>(30), std::vector<uint32_t>{0},
                                             std::vector<uint32_t>(order.begin() + 1, order.end())})
    EXPECT_THAT(message_of<std::invalid_argument>([&] { file.read_row_group(0, wrong); }),
                HasSubstr("order: expected each number below 30 once"));
  order.back() = 30;
  EXPECT_THROW(file.read_row_group(0, order), std::invalid_argument);
}

// Indices into dictionaries of up to 65,535 values are put into order instead of the values. One of the
// values is written as null, and is not in the dictionary.
TEST(ParquetFile, ReadsDictionariesOfEverySizeInAnyOrder) {
  const TemporaryFolder folder;
  constexpr int64_t kRows = 150'000, kNull = -5, kFill = -9;
  const at::Tensor permutation = at::randperm(kRows, at::kLong);
  const auto* numbers = permutation.const_data_ptr<int64_t>();
  std::vector<uint32_t> order;
  for (int64_t i = 0; i < kRows; ++i) order.push_back(static_cast<uint32_t>(numbers[i]));
  for (const auto type : {at::kInt, at::kLong, at::kFloat, at::kDouble}) {
    for (const int64_t distinct : std::initializer_list<int64_t>{1, 3, 65'536, 65'537, kRows}) {
      const std::string path = folder.file(std::to_string(distinct) + ".parquet");
      const at::Tensor values = at::arange(kRows, at::kLong).remainder(distinct).mul(7).add(kNull).to(type);
      ParquetWriter writer({.path = path,
                            .columns = {{.name = "column", .type = type}},
                            .rows_per_group = kRows,
                            .null_value = kNull});
      writer.append({{.values = values, .offsets = {}}});
      writer.close();
      const ParquetFile file({.path = path, .null_fill = kFill});
      const at::Tensor expected = values.masked_fill(values == kNull, kFill);
      EXPECT_TRUE(file.read_row_group(0)[0].values.equal(expected)) << type << ", " << distinct;
      EXPECT_TRUE(file.read_row_group(0, order)[0].values.equal(expected.index_select(0, permutation)))
          << type << ", " << distinct;
    }
  }
}

TEST(ParquetWriter, WritesAllTypesOfNumbersAndStrings) {
  const TemporaryFolder folder;
  std::vector<ParquetColumn> columns;
  std::vector<ParquetValues> values;
  for (const auto type : {at::kBool, at::kChar, at::kByte, at::kShort, at::kInt, at::kLong, at::kHalf,
                          at::kFloat, at::kDouble}) {
    columns.push_back({.name = c10::toString(type), .type = type});
    values.push_back(
        {.values = at::arange(20).remainder(7).sub(type == at::kByte || type == at::kBool ? 0 : 3).to(type),
         .offsets = {}});
  }
  columns.push_back({.name = "text", .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte});
  values.push_back({.values = at::arange(190).to(at::kByte), .offsets = at::arange(20).cumsum(0)});
  values.back().offsets = at::cat({at::zeros({1}, at::kLong), values.back().offsets});
  ParquetWriter writer({.path = folder.file("types.parquet"), .columns = columns});
  writer.append(values);
  writer.close();
  const ParquetFile file({.path = folder.file("types.parquet")});
  EXPECT_EQ(file.columns(), columns);
  const auto read = file.read_row_group(0);
  for (size_t i = 0; i < columns.size(); ++i) {
    EXPECT_TRUE(read[i].values.equal(values[i].values)) << columns[i].name;
  }
  EXPECT_TRUE(read.back().offsets.equal(values.back().offsets));
}

TEST(ParquetWriter, WritesTextsThatAreUtf8Only) {
  const TemporaryFolder folder;
  const ParquetColumn column{.name = "text", .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte};
  const auto options = [&](const std::string& name) {
    return ParquetWriterOptions{
        .path = folder.file(name), .columns = {column}, .rows_per_group = 1, .text_columns = {"text"}};
  };
  const auto value = [](const std::vector<int64_t>& bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    return std::vector<ParquetValues>{
        {.values = at::tensor(bytes).to(at::kByte), .offsets = at::tensor({int64_t{0}, size}, at::kLong)}};
  };
  ParquetWriter writer(options("texts"));
  writer.append(value({0xc3, 0xa9}));
  writer.close();
  EXPECT_EQ(ParquetFile({.path = folder.file("texts")}).columns(), std::vector{column});
  ParquetWriter bad(options("bad"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] {
                bad.append(value({0xc3, 0x28}));
              }),
              HasSubstr("column 'text': expected UTF-8"));
  EXPECT_THAT(
      message_of<std::invalid_argument>([&] {
        ParquetWriter(
            {.path = folder.file("numbers"), .columns = {{.name = "number"}}, .text_columns = {"number"}});
      }),
      HasSubstr("text_columns: expected columns of bytes, but 'number' is none"));
}

TEST(ParquetWriter, WritesANumberAsNull) {
  const TemporaryFolder folder;
  const std::string path = folder.file("nulls.parquet");
  const at::Tensor numbers = at::tensor({-1, 4, -1, 0, 7}, at::kLong);
  ParquetWriter writer({.path = path, .columns = {{.name = "x", .type = at::kLong}}, .null_value = -1});
  writer.append({{.values = numbers, .offsets = {}}});
  writer.close();
  EXPECT_THAT(message_of<std::exception>([&] { ParquetFile({.path = path}).read_row_group(0); }),
              HasSubstr("expected no nulls, but got 2"));
  EXPECT_TRUE(ParquetFile({.path = path, .null_fill = -1}).read_row_group(0)[0].values.equal(numbers));
  EXPECT_TRUE(ParquetFile({.path = path, .null_fill = 5})
                  .read_row_group(0)[0]
                  .values.equal(at::tensor({5, 4, 5, 0, 7}, at::kLong)));
}

TEST(ParquetWriter, TellsANullFromItsNeighbours) {
  const TemporaryFolder folder;
  const std::string path = folder.file("nulls.parquet");
  const at::Tensor numbers = at::tensor({999'999'999, 1'000'000'000, 7}, at::kInt);
  ParquetWriter writer({.path = path,
                        .columns = {{.name = "x", .type = at::kInt}, {.name = "small", .type = at::kChar}},
                        .null_value = 999'999'999});
  writer.append({{.values = numbers, .offsets = {}}, {.values = at::zeros({3}, at::kChar), .offsets = {}}});
  writer.close();
  const auto read = ParquetFile({.path = path, .column_null_fills = {{"x", -5}}}).read_row_group(0);
  EXPECT_TRUE(read[0].values.equal(at::tensor({-5, 1'000'000'000, 7}, at::kInt)));
}

TEST(ParquetWriter, WritesRowGroupsOfTheSizeThatIsAskedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.parquet");
  constexpr int64_t kRows = int64_t{3} << 20;
  ParquetWriter writer(
      {.path = path, .columns = {{.name = "x", .type = at::kChar}}, .rows_per_group = kRows});
  writer.append({{.values = at::zeros({kRows + 1}, at::kChar), .offsets = {}}});
  writer.close();
  const ParquetFile file({.path = path});
  ASSERT_EQ(file.num_row_groups(), 2);
  EXPECT_EQ(file.num_rows(0), kRows);
}

TEST(ParquetWriter, RefusesOtherValuesThanItsColumnsHave) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.parquet");
  {
    ParquetWriter writer({.path = path, .columns = numbered_columns()});
    const auto refusal = [&](size_t column, const ParquetValues& values) {
      auto rows = numbered_rows(0, 4);
      rows[column] = values;
      return message_of<std::invalid_argument>([&] { writer.append(rows); });
    };
    EXPECT_THAT(refusal(0, {.values = at::zeros({4}), .offsets = {}}),
                HasSubstr("column 'number': expected Long, but got Float"));
    EXPECT_THAT(refusal(0, {.values = at::zeros({3}, at::kLong), .offsets = {}}),
                HasSubstr("column 'halves': expected 3 rows, but got 4"));
    EXPECT_THAT(refusal(1, {.values = at::zeros({4, 3}), .offsets = {}}),
                HasSubstr("column 'halves': expected [rows, 2] values, but got [4, 3]"));
    EXPECT_THAT(refusal(2, {.values = at::zeros({4}, at::kInt), .offsets = {}}),
                HasSubstr("column 'bag': expected offsets, but got none"));
    for (const auto& offsets : {std::vector<int64_t>{0, 1, 2, 3, 5}, {0, 3, 2, 3, 4}, {-1, 1, 2, 3, 4}})
      EXPECT_THAT(refusal(2, {.values = at::zeros({4}, at::kInt), .offsets = at::tensor(offsets, at::kLong)}),
                  HasSubstr("column 'bag': expected offsets that rise from 0 or more to at most 4"));
    EXPECT_THAT(message_of<std::invalid_argument>([&] { writer.append({}); }),
                HasSubstr("expected the values of 3 columns, but got those of 0"));
    writer.append(numbered_rows(0, 4));
  }
  // It was not closed.
  EXPECT_EQ(folder.num_files(), 0U);
  EXPECT_THROW(ParquetWriter({.path = path, .columns = {}}), std::invalid_argument);
  EXPECT_THROW(ParquetWriter({.path = path, .columns = numbered_columns(), .rows_per_group = 0}),
               std::invalid_argument);
  EXPECT_THROW(ParquetWriter({.path = path, .columns = numbered_columns(), .compression = "brotil"}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
