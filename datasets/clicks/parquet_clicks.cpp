#include "lockstep/datasets/clicks/parquet_clicks.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/internal/quoted_field.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"

namespace lockstep {

namespace {

/// Stands for a missing number. Negative numbers count as missing, too.
constexpr double kMissingNumber = -1;
/// Stands for a missing category of int32, whose other negative numbers are the upper half of 32 bits.
constexpr int64_t kMissingInt32 = std::numeric_limits<int32_t>::min();

std::vector<std::string> column_names(const std::string& number, const std::string& category, int first) {
  std::vector<std::string> names{"label"};
  for (int i = 0; i < kClickNumbers; ++i) names.push_back(number + std::to_string(first + i));
  for (int i = 0; i < kClickCategories; ++i) names.push_back(category + std::to_string(first + i));
  return names;
}

bool is_number(size_t column) {
  return column >= 1 && column <= kClickNumbers;
}

/// Opens a file with the columns of a click log, whichever names they have.
ParquetFile open_clicks(const std::string& path, int store_attempts) {
  std::string why;
  for (const auto& names : {column_names("I", "C", 1), column_names("int_", "cat_", 0)}) {
    try {
      return ParquetFile({.path = path, .columns = names, .store_attempts = store_attempts});
    } catch (const DataError& error) {
      if (why.empty()) why = error.what();
    }
  }
  throw DataError(why +
                  "; click logs have the columns label, I1 to I13 and C1 to C26, or label, int_0 to int_12 "
                  "and cat_0 to cat_25");
}

void check_type(const ParquetFile& file, size_t i, const ParquetColumn& column) {
  const bool is_float = at::isFloatingType(column.type);
  const bool is_single = column.shape == ParquetShape::kNumber && column.unit.empty();
  const bool is_text = column.shape == ParquetShape::kBytes;
  const auto refuse = [&](const std::string& expected) {
    throw DataError(file.path() + ": column '" + column.name + "': expected " + expected +
                    ", but got another type");
  };
  if (i == 0) {
    if (!is_single) refuse("labels of 0 or 1");
  } else if (is_number(i)) {
    if (!is_single || column.type == at::kBool) refuse("integers or floating-point numbers");
  } else if (!is_text && (!is_single || is_float || column.type == at::kBool)) {
    refuse("integers, or strings of 8 hexadecimal digits");
  }
}

ParquetDatasetOptions options_for(ParquetDatasetOptions options) {
  if (!options.columns.empty() || options.null_fill || !options.column_null_fills.empty())
    throw std::invalid_argument("[ParquetClicks] expected no columns and no null fills");
  const std::vector<std::string> paths = find_parquet_files(options.paths, options.store_attempts);
  if (paths.empty()) throw std::invalid_argument("[ParquetClicks] paths: expected a file, but got none");
  const ParquetFile first = open_clicks(paths.front(), options.store_attempts);
  for (const ParquetColumn& column : first.columns()) options.columns.push_back(column.name);
  for (size_t i = 0; i < options.columns.size(); ++i) {
    const ParquetColumn& column = first.columns()[i];
    check_type(first, i, column);
    // Bytes have no number to spare: nulls in them are refused, as in labels.
    if (i == 0 || column.shape != ParquetShape::kNumber || column.type == at::kByte) continue;
    options.column_null_fills[column.name] =
        !is_number(i) && column.type == at::kInt ? static_cast<double>(kMissingInt32) : kMissingNumber;
  }
  options.null_lists_are_empty = true;
  return options;
}

/// Says where a wrong value is.
class Place {
 public:
  Place(const ParquetDataset& rows, c10::ArrayRef<size_t> indices) : rows_(rows), indices_(indices) {}

  [[noreturn]] void refuse(int64_t i, size_t column, const std::string& expected,
                           const std::string& given) const {
    const ParquetPlace place = rows_.place_of(indices_[static_cast<size_t>(i)]);
    throw DataError(
        place.path + ": row group " + std::to_string(place.row_group) + ": row " + std::to_string(place.row),
        "column '" + rows_.columns()[column].name + "'", expected, given);
  }

 private:
  const ParquetDataset& rows_;
  c10::ArrayRef<size_t> indices_;
};

/// Rows of a batch that are made column by column while they stay in the first cache.
struct Block {
  int64_t begin = 0;
  int64_t end = 0;
};
constexpr int64_t kBlockRows = 64;

void read_labels(const Place& place, const Block& block, const at::Tensor& values, float* to) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kBool, at::kHalf, values.scalar_type(), "labels", [&] {
    const auto* from = values.const_data_ptr<scalar_t>();
    for (int64_t i = block.begin; i < block.end; ++i) {
      to[i] = static_cast<float>(from[i]);
      if (to[i] != 0 && to[i] != 1) place.refuse(i, 0, "a label of 0 or 1", std::to_string(to[i]));
    }
  });
}

/// click_feature() of the small numbers that most are: a logarithm takes longer than all else in a value.
const std::array<float, 1024>& small_features() {
  static const auto features = [] {
    std::array<float, 1024> made{};
    for (size_t i = 0; i < made.size(); ++i) made[i] = click_feature(static_cast<int64_t>(i));
    return made;
  }();
  return features;
}

void read_numbers(const Block& block, const at::Tensor& values, float* to) {
  const auto& small = small_features();
  constexpr auto kSmall = static_cast<int64_t>(std::tuple_size_v<std::decay_t<decltype(small)>>);
  AT_DISPATCH_ALL_TYPES_AND(at::kHalf, values.scalar_type(), "numbers", [&] {
    const auto* from = values.const_data_ptr<scalar_t>();
    for (int64_t i = block.begin; i < block.end; ++i) {
      float& feature = to[i * kClickNumbers];
      if constexpr (std::is_integral_v<scalar_t>) {
        const auto number = static_cast<int64_t>(from[i]);
        if (number < kSmall) {
          feature = number > 0 ? small[static_cast<size_t>(number)] : 0.F;
          continue;
        }
      }
      const auto number = static_cast<double>(from[i]);
      // click_feature(), and NaN counts as missing.
      feature = number > 0 ? static_cast<float>(std::log1p(number)) : 0.F;
    }
  });
}

void read_categories(const Place& place, const Block& block, size_t column, const at::Tensor& values,
                     int64_t* to) {
  const int64_t of_missing = click_id(static_cast<int>(column) - 1 - kClickNumbers, std::nullopt);
  const int64_t of_zero = click_id(static_cast<int>(column) - 1 - kClickNumbers, 0);
  const bool is_int32 = values.scalar_type() == at::kInt;
  const int64_t missing = is_int32 ? kMissingInt32 : -1;
  AT_DISPATCH_INTEGRAL_TYPES(values.scalar_type(), "categories", [&] {
    const auto* from = values.const_data_ptr<scalar_t>();
    for (int64_t i = block.begin; i < block.end; ++i) {
      const auto number = static_cast<int64_t>(from[i]);
      const auto category = static_cast<int64_t>(static_cast<uint32_t>(number));
      if (!is_int32 && number != missing && number != category)
        place.refuse(i, column, "an integer of 32 bits", std::to_string(number));
      to[i * kClickCategories] = number == missing ? of_missing : of_zero + category;
    }
  });
}

void read_category_texts(const Place& place, const Block& block, size_t column, const ParquetValues& values,
                         int64_t* to) {
  const auto category = static_cast<int>(column) - 1 - kClickNumbers;
  const auto* bytes = reinterpret_cast<const char*>(values.values.const_data_ptr<uint8_t>());
  const auto* offsets = values.offsets.const_data_ptr<int64_t>();
  for (int64_t i = block.begin; i < block.end; ++i) {
    const char* begin = bytes + offsets[i];
    const char* end = bytes + offsets[i + 1];
    uint32_t number = 0;
    if (begin != end) {
      const auto [last, error] = std::from_chars(begin, end, number, 16);
      if (end - begin != 8 || error != std::errc() || last != end)
        place.refuse(i, column, "8 hexadecimal digits or nothing",
                     quoted_field({begin, static_cast<size_t>(end - begin)}));
    }
    to[i * kClickCategories] = click_id(category, begin == end ? std::nullopt : std::optional(number));
  }
}

}  // namespace

std::vector<ParquetColumn> click_columns() {
  std::vector<ParquetColumn> columns;
  for (const std::string& name : column_names("I", "C", 1))
    columns.push_back({.name = name, .type = columns.empty() ? at::kChar : at::kLong});
  return columns;
}

std::vector<ParquetValues> click_values(const std::vector<ClickRow>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<ParquetValues> values;
  for (const ParquetColumn& column : click_columns())
    values.push_back({.values = at::empty({count}, column.type), .offsets = {}});
  auto* labels = values[0].values.mutable_data_ptr<int8_t>();
  constexpr auto kMissingLong = static_cast<int64_t>(kMissingClickValue);
  for (size_t i = 0; i < rows.size(); ++i) labels[i] = rows[i].is_click ? 1 : 0;
  for (size_t column = 0; column < kClickNumbers; ++column) {
    auto* to = values[1 + column].values.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < rows.size(); ++i) to[i] = rows[i].numbers[column].value_or(kMissingLong);
  }
  for (size_t column = 0; column < kClickCategories; ++column) {
    auto* to = values[1 + kClickNumbers + column].values.mutable_data_ptr<int64_t>();
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& category = rows[i].categories[column];
      to[i] = category ? int64_t{*category} : kMissingLong;
    }
  }
  return values;
}

ParquetClicks::ParquetClicks(const ParquetDatasetOptions& options) : rows_(options_for(options)) {}

ClickBatch ParquetClicks::get_batch(c10::ArrayRef<size_t> indices) const {
  const ParquetBatch rows = rows_.get_batch(indices);
  const auto count = static_cast<int64_t>(indices.size());
  auto numbers = at::empty({count, kClickNumbers}, at::kFloat);
  auto ids = at::empty({count, kClickCategories}, at::kLong);
  auto labels = at::empty({count}, at::kFloat);
  const Place place(rows_, indices);
  Block block;
  const auto read_column = [&](size_t column) {
    const ParquetValues& values = rows.columns[column];
    if (column == 0) return read_labels(place, block, values.values, labels.mutable_data_ptr<float>());
    if (is_number(column))
      return read_numbers(block, values.values, numbers.mutable_data_ptr<float>() + (column - 1));
    int64_t* const to = ids.mutable_data_ptr<int64_t>() + (column - 1 - kClickNumbers);
    if (values.offsets.defined()) return read_category_texts(place, block, column, values, to);
    read_categories(place, block, column, values.values, to);
  };
  for (; block.begin < count; block.begin = block.end) {
    block.end = std::min(block.begin + kBlockRows, count);
    for (size_t column = 0; column < rows.columns.size(); ++column) read_column(column);
  }
  return {{std::move(numbers), std::move(ids)}, std::move(labels)};
}

}  // namespace lockstep
