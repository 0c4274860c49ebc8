#include "lockstep/apps/convert_data/click_text.h"

#include <ATen/Dispatch.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/internal/quoted_field.h"
#include "lockstep/datasets/clicks/parquet_clicks.h"
#include "lockstep/datasets/files/data_error.h"

namespace lockstep::apps {
namespace {

bool is_number_column(size_t column) {
  return column >= 1 && column <= kClickNumbers;
}

/// Returns the number that stands for missing values: the lowest of the column's type, or NaN.
double missing_value(const ParquetColumn& column) {
  if (at::isFloatingType(column.type)) return std::numeric_limits<double>::quiet_NaN();
  return -std::ldexp(1.0, static_cast<int>(8 * c10::elementSize(column.type)) - 1);
}

/// The options by which the nulls of these columns are read.
ParquetFileOptions click_options(const std::string& path, const std::vector<ParquetColumn>& columns) {
  ParquetFileOptions options{.path = path, .null_lists_are_empty = true};
  for (size_t i = 0; i < columns.size(); ++i) {
    const ParquetColumn& column = columns[i];
    options.columns.push_back(column.name);
    // Labels are there, and bytes have no number to spare.
    if (i > 0 && column.shape == ParquetShape::kNumber && column.type != at::kByte)
      options.column_null_fills[column.name] = missing_value(column);
  }
  return options;
}

/// The texts of one column, row by row.
class ColumnText {
 public:
  ColumnText(const ParquetFile& file, int row_group, size_t index, const ParquetValues& values)
      : file_(file), row_group_(row_group), index_(index), values_(values) {
    const ParquetColumn& column = file.columns()[index];
    if (column.shape == ParquetShape::kBytes) return;
    is_float_ = at::isFloatingType(column.type);
    missing_ = is_float_ || column.type == at::kByte || column.type == at::kBool
                   ? std::numeric_limits<int64_t>::min()
                   : static_cast<int64_t>(missing_value(column));
    values_.values = is_float_ ? values.values.to(at::kDouble) : values.values.to(at::kLong);
  }

  void append(int64_t row, std::string& text) const {
    if (values_.offsets.defined()) return append_bytes(row, text);
    int64_t number = 0;
    if (is_float_) {
      const double value = values_.values.const_data_ptr<double>()[row];
      if (std::isnan(value) && index_ > 0) return;
      // Below 2^63, and thus int64.
      if (!(std::fabs(value) < 0x1p63) || std::trunc(value) != value)
        refuse(row, "an integer of 64 bits", std::to_string(value));
      number = static_cast<int64_t>(value);
    } else {
      number = values_.values.const_data_ptr<int64_t>()[row];
      if (number == missing_ && index_ > 0) return;
    }
    if (index_ == 0 && number != 0 && number != 1) refuse(row, "a label of 0 or 1", std::to_string(number));
    if (index_ == 0 || is_number_column(index_)) {
      std::array<char, 24> digits{};
      text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
    } else {
      append_category(row, number, text);
    }
  }

 private:
  void append_bytes(int64_t row, std::string& text) const {
    const auto* offsets = values_.offsets.const_data_ptr<int64_t>();
    const std::string_view bytes(
        reinterpret_cast<const char*>(values_.values.const_data_ptr<uint8_t>()) + offsets[row],
        static_cast<size_t>(offsets[row + 1] - offsets[row]));
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number, 16);
    if (!bytes.empty() && (bytes.size() != 8 || error != std::errc() || end != bytes.data() + bytes.size()))
      refuse(row, "8 hexadecimal digits or nothing", quoted_field(bytes));
    text += bytes;
  }

  void append_category(int64_t row, int64_t number, std::string& text) const {
    const bool is_int32 = file_.columns()[index_].type == at::kInt;
    // In columns of int32, the upper half of 32 bits is negative.
    if (!is_int32 && number != int64_t{static_cast<uint32_t>(number)})
      refuse(row, "an integer of 32 bits", std::to_string(number));
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[(static_cast<uint32_t>(number) >> shift) & 15U];
  }

  [[noreturn]] void refuse(int64_t row, const std::string& expected, const std::string& given) const {
    throw DataError(
        file_.path() + ": row group " + std::to_string(row_group_) + ": row " + std::to_string(row),
        "column '" + file_.columns()[index_].name + "'", expected, given);
  }

  const ParquetFile& file_;
  int row_group_;
  size_t index_;
  ParquetValues values_;
  bool is_float_ = false;
  int64_t missing_ = 0;
};

}  // namespace

ParquetFile open_click_parquet(const std::string& path) {
  // It names the columns that are missing, or of a wrong type.
  const ParquetClicks clicks({.paths = {path}, .memory_limit = std::numeric_limits<int64_t>::max()});
  return ParquetFile(click_options(path, clicks.rows().columns()));
}

std::string click_text(const ParquetFile& file, int row_group) {
  const std::vector<ParquetValues> values = file.read_row_group(row_group);
  std::vector<ColumnText> columns;
  for (size_t i = 0; i < values.size(); ++i) columns.emplace_back(file, row_group, i, values[i]);
  std::string text;
  constexpr size_t kBytesOfRow = 256;
  text.reserve(static_cast<size_t>(file.num_rows(row_group)) * kBytesOfRow);
  for (int64_t row = 0; row < file.num_rows(row_group); ++row) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += '\t';
      columns[i].append(row, text);
    }
    text += '\n';
  }
  return text;
}

}  // namespace lockstep::apps
