#include "lockstep/datasets/parquet/internal/arrow_column.h"

#include <arrow/type.h>

#include <cmath>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

/// More digits do not always fit into int64.
constexpr int kMaxDecimalDigits = 18;

/// Completes the column with the type of its values, and returns true if that is supported.
bool set_value_type(const arrow::DataType& type, ParquetColumn& column) {
  const auto is = [&](at::ScalarType read_as, std::string unit = "") {
    column.type = read_as;
    column.unit = std::move(unit);
    return true;
  };
  const auto unit_of = [](const auto& time) {
    static const char* const kNames[] = {"s", "ms", "us", "ns"};
    return kNames[static_cast<int>(time.unit())];
  };
  switch (type.id()) {
    case arrow::Type::BOOL:
      return is(at::kBool);
    case arrow::Type::INT8:
      return is(at::kChar);
    case arrow::Type::UINT8:
      return is(at::kByte);
    case arrow::Type::INT16:
      return is(at::kShort);
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
      return is(at::kInt);
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT64:
      return is(at::kLong);
    case arrow::Type::HALF_FLOAT:
      return is(at::kHalf);
    case arrow::Type::FLOAT:
      return is(at::kFloat);
    case arrow::Type::DOUBLE:
      return is(at::kDouble);
    case arrow::Type::DATE32:
      return is(at::kInt, "days");
    case arrow::Type::DATE64:
      return is(at::kLong, "ms");
    case arrow::Type::TIME32:
      return is(at::kInt, unit_of(static_cast<const arrow::Time32Type&>(type)));
    case arrow::Type::TIME64:
      return is(at::kLong, unit_of(static_cast<const arrow::Time64Type&>(type)));
    case arrow::Type::TIMESTAMP:
      return is(at::kLong, unit_of(static_cast<const arrow::TimestampType&>(type)));
    case arrow::Type::DURATION:
      return is(at::kLong, unit_of(static_cast<const arrow::DurationType&>(type)));
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128: {
      const auto& decimal = static_cast<const arrow::DecimalType&>(type);
      return decimal.precision() <= kMaxDecimalDigits &&
             is(type.id() == arrow::Type::DECIMAL32 ? at::kInt : at::kLong,
                "1e" + std::to_string(-decimal.scale()));
    }
    default:
      return false;
  }
}

bool is_bytes(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return true;
    case arrow::Type::DICTIONARY:  // Parquet's readers make dictionaries of strings and binaries only
      return is_bytes(*static_cast<const arrow::DictionaryType&>(type).value_type());
    default:
      return false;
  }
}

/// Completes the column, and returns true if the type is supported.
bool set_type(const arrow::DataType& type, ParquetColumn& column) {
  if (is_bytes(type) || type.id() == arrow::Type::FIXED_SIZE_BINARY) {
    const bool is_fixed = type.id() == arrow::Type::FIXED_SIZE_BINARY;
    column.shape = is_fixed ? ParquetShape::kFixedList : ParquetShape::kBytes;
    column.length = is_fixed ? static_cast<const arrow::FixedSizeBinaryType&>(type).byte_width() : 0;
    column.type = at::kByte;
    return true;
  }
  if (type.id() == arrow::Type::FIXED_SIZE_LIST) {
    const auto& list = static_cast<const arrow::FixedSizeListType&>(type);
    column.shape = ParquetShape::kFixedList;
    column.length = list.list_size();
    return set_value_type(*list.value_type(), column);
  }
  if (type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST) {
    column.shape = ParquetShape::kList;
    column.length = 0;
    return set_value_type(*static_cast<const arrow::BaseListType&>(type).value_type(), column);
  }
  return set_value_type(type, column);
}

void check_fill(const char* option, const ParquetColumn& column, double fill) {
  if (!holds_number(column.type, fill))
    throw std::invalid_argument(std::string("[ParquetFile] ") + option + ": expected a value of column '" +
                                column.name + "', of type " + c10::toString(column.type) + ", but got " +
                                std::to_string(fill));
}

}  // namespace

bool holds_number(at::ScalarType type, double number) {
  if (at::isFloatingType(type)) return true;
  const bool is_bool = type == at::kBool;
  const int bits = is_bool ? 1 : static_cast<int>(8 * c10::elementSize(type));
  const bool is_unsigned = is_bool || type == at::kByte;
  const double below = std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  const double least = is_unsigned ? 0 : -below;
  return number >= least && number < below && std::trunc(number) == number;
}

ParquetColumn parquet_column(const std::string& path, const arrow::Field& field) {
  ParquetColumn column{.name = field.name()};
  if (!set_type(*field.type(), column))
    throw DataError(path, "column '" + field.name() + "'",
                    "bool, an integer of at most 64 bits, a floating-point number, a date, a time, a decimal "
                    "of at most 18 digits, a list of them, a string or a binary",
                    field.type()->ToString());
  return column;
}

NullRule null_rule(const ParquetFileOptions& options, const ParquetColumn& column) {
  NullRule rule{.fill = options.null_fill, .lists_are_empty = options.null_lists_are_empty};
  const auto own = options.column_null_fills.find(column.name);
  const bool has_own = own != options.column_null_fills.end();
  if (column.shape == ParquetShape::kBytes) {
    if (has_own)
      throw std::invalid_argument("[ParquetFile] column_null_fills: expected a column of numbers, but '" +
                                  column.name + "' holds strings or binaries");
    return rule;
  }
  if (has_own) rule.fill = own->second;
  if (rule.fill) check_fill(has_own ? "column_null_fills" : "null_fill", column, *rule.fill);
  return rule;
}

}  // namespace lockstep
