#include "lockstep/datasets/clicks/parquet_clicks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "lockstep/datasets/clicks/generated_clicks.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/parquet_writer.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::vector<ClickRow> generated_rows(size_t count) {
  const GeneratedClicks clicks({.count = static_cast<int64_t>(count), .seed = 3});
  std::vector<ClickRow> rows;
  for (size_t i = 0; i < count; ++i) rows.push_back(clicks.row(i));
  rows[0].numbers[2] = -2;  // as Criteo's logs have
  rows[1].categories[5] = 0xffffffff;
  rows[2].categories[5] = 0;
  return rows;
}

void expect_equal(const ClickBatch& got, const std::vector<ClickRow>& rows) {
  const ClickBatch expected = click_batch(rows);
  EXPECT_TRUE(std::get<0>(got.data).equal(std::get<0>(expected.data)));
  EXPECT_TRUE(std::get<1>(got.data).equal(std::get<1>(expected.data)));
  EXPECT_TRUE(got.target.equal(expected.target));
}

TEST(ParquetClicks, AreTheRowsThatWereWritten) {
  const TemporaryFolder folder;
  const auto rows = generated_rows(500);
  ParquetWriter writer({.path = folder.file("clicks.parquet"),
                        .columns = click_columns(),
                        .rows_per_group = 60,
                        .null_value = kMissingClickValue});
  writer.append(click_values(rows));
  writer.close();
  const ParquetClicks clicks({.paths = {folder.path()}});
  ASSERT_EQ(clicks.size(), rows.size());
  EXPECT_EQ(clicks.chunk_sizes().size(), 9U);
  std::vector<size_t> indices;
  std::vector<ClickRow> chosen;
  for (size_t i = 0; i < rows.size(); ++i) {
    indices.push_back(i * 7 % rows.size());
    chosen.push_back(rows[indices.back()]);
  }
  expect_equal(clicks.get_batch(indices), chosen);
}

/// Writes rows with other names and types: labels as float, numbers as double, and categories as `category`
/// says, nulls as they are in such types.
void write_others(const std::string& path, const std::vector<ClickRow>& rows, at::ScalarType category) {
  std::vector<ParquetColumn> columns{{.name = "label", .type = at::kFloat}};
  std::vector<ParquetValues> values{
      {.values = torch::empty({static_cast<int64_t>(rows.size())}), .offsets = {}}};
  for (size_t i = 0; i < rows.size(); ++i)
    values[0].values[static_cast<int64_t>(i)] = rows[i].is_click ? 1.0F : 0.0F;
  for (int column = 0; column < kClickNumbers; ++column) {
    columns.push_back({.name = "int_" + std::to_string(column), .type = at::kDouble});
    std::vector<double> numbers;
    for (const ClickRow& row : rows)
      numbers.push_back(static_cast<double>(row.numbers[static_cast<size_t>(column)].value_or(-100)));
    values.push_back({.values = torch::tensor(numbers, torch::kDouble), .offsets = {}});
  }
  for (int column = 0; column < kClickCategories; ++column) {
    const std::string name = "cat_" + std::to_string(column);
    std::vector<int64_t> numbers, offsets{0};
    std::string text;
    for (const ClickRow& row : rows) {
      const auto& given = row.categories[static_cast<size_t>(column)];
      numbers.push_back(given ? static_cast<int32_t>(*given) : -100);
      char digits[9];
      std::snprintf(digits, sizeof digits, "%08x", given.value_or(0));
      if (given) text += digits;
      offsets.push_back(static_cast<int64_t>(text.size()));
    }
    if (category == at::kByte) {
      columns.push_back({.name = name, .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte});
      values.push_back({.values = torch::from_blob(text.data(), {offsets.back()}, torch::kByte).clone(),
                        .offsets = torch::tensor(offsets, torch::kLong)});
    } else {
      columns.push_back({.name = name, .type = category});
      values.push_back({.values = torch::tensor(numbers, torch::kLong).to(category), .offsets = {}});
    }
  }
  ParquetWriter writer({.path = path, .columns = columns, .null_value = -100});
  writer.append(values);
  writer.close();
}

TEST(ParquetClicks, MayHaveOtherNamesAndTypes) {
  for (const auto category : {at::kInt, at::kByte}) {
    const TemporaryFolder folder;
    const auto rows = generated_rows(100);
    write_others(folder.file("clicks.parquet"), rows, category);
    const ParquetClicks clicks({.paths = {folder.path()}});
    std::vector<size_t> all(rows.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    expect_equal(clicks.get_batch(all), rows);
  }
}

TEST(ParquetClicks, NameTheFileAndTheColumnIfTheyAreNone) {
  const TemporaryFolder folder;
  const std::string path = folder.file("clicks.parquet");
  const auto write =
      [&](const std::function<void(std::vector<ParquetColumn>&, std::vector<ParquetValues>&)>& change) {
        auto columns = click_columns();
        auto values = click_values(generated_rows(10));
        change(columns, values);
        ParquetWriter writer({.path = path, .columns = columns, .null_value = kMissingClickValue});
        writer.append(values);
        writer.close();
      };
  const auto refusal = [&] {
    return message_of<DataError>([&] { ParquetClicks({.paths = {path}}).get_batch({0, 7}); });
  };
  write([](auto& columns, auto&) { columns[3].name = "I33"; });
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr(path + ": columns: expected one named 'I3', but got label, I1, I2, I33"),
                    HasSubstr("; click logs have the columns label, I1 to I13")));
  write([](auto& columns, auto& values) {
    columns[20].type = at::kDouble;
    values[20].values = values[20].values.to(at::kDouble);
  });
  EXPECT_THAT(refusal(), HasSubstr(path + ": column 'C7': expected integers, or strings"));
  write([](auto&, auto& values) { values[0].values[7] = 3; });
  EXPECT_THAT(refusal(),
              HasSubstr(path + ": row group 0: row 7: column 'label': expected a label of 0 or 1"));
  write([](auto&, auto& values) { values[14].values[7] = int64_t{1} << 32; });
  EXPECT_THAT(refusal(),
              HasSubstr(path + ": row group 0: row 7: column 'C1': expected an integer of 32 bits, "
                               "but got 4294967296"));
}

}  // namespace
}  // namespace lockstep
