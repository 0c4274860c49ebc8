#include "lockstep/datasets/parquet/internal/arrow_column.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <arrow/array.h>
#include <arrow/type.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

std::optional<at::ScalarType> type_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
      return at::kBool;
    case arrow::Type::INT8:
      return at::kChar;
    case arrow::Type::UINT8:
      return at::kByte;
    case arrow::Type::INT16:
      return at::kShort;
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
      return at::kInt;
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
      return at::kLong;
    case arrow::Type::HALF_FLOAT:
      return at::kHalf;
    case arrow::Type::FLOAT:
      return at::kFloat;
    case arrow::Type::DOUBLE:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

template <typename Unsigned, typename Wide>
at::Tensor widened(const arrow::ArrayData& data, at::ScalarType type) {
  const auto* from = data.GetValues<Unsigned>(1);
  at::Tensor values = at::empty({data.length}, type);
  std::copy(from, from + data.length, values.data_ptr<Wide>());
  return values;
}

at::Tensor unpacked_bools(const arrow::BooleanArray& array) {
  at::Tensor values = at::empty({array.length()}, at::kBool);
  bool* to = values.data_ptr<bool>();
  for (int64_t i = 0; i < array.length(); ++i) to[i] = array.Value(i);
  return values;
}

// The tensor writes into memory that nothing else reads: a row group is decoded anew for each call.
at::Tensor shared_numbers(const std::shared_ptr<arrow::Array>& array, at::ScalarType type) {
  const arrow::ArrayData& data = *array->data();
  if (data.length == 0) return at::empty({0}, type);
  const auto* bytes = data.buffers[1]->data() + data.offset * static_cast<int64_t>(c10::elementSize(type));
  return at::from_blob(
      const_cast<uint8_t*>(bytes), {data.length}, [array](void*) {}, type);
}

at::Tensor numbers_with_nulls(const std::shared_ptr<arrow::Array>& array, at::ScalarType type) {
  switch (array->type_id()) {
    case arrow::Type::BOOL:
      return unpacked_bools(static_cast<const arrow::BooleanArray&>(*array));
    case arrow::Type::UINT16:
      return widened<uint16_t, int32_t>(*array->data(), type);
    case arrow::Type::UINT32:
      return widened<uint32_t, int64_t>(*array->data(), type);
    default:
      return shared_numbers(array, type);
  }
}

at::Tensor numbers(const std::string& place, const std::shared_ptr<arrow::Array>& array, at::ScalarType type,
                   std::optional<double> null_fill) {
  const int64_t nulls = array->null_count();
  if (nulls > 0 && !null_fill)
    throw DataError(place + ": expected no nulls, but got " + std::to_string(nulls) +
                    "; null_fill sets a number to stand for them");
  at::Tensor values = numbers_with_nulls(array, type);
  if (nulls == 0) return values;
  at::Tensor is_null = at::empty({array->length()}, at::kBool);
  bool* marks = is_null.data_ptr<bool>();
  for (int64_t i = 0; i < array->length(); ++i) marks[i] = array->IsNull(i);
  return values.masked_fill_(is_null, *null_fill);
}

template <typename List>
ParquetValues lists(const std::string& place, const std::shared_ptr<arrow::Array>& array, at::ScalarType type,
                    std::optional<double> null_fill) {
  const auto& list = static_cast<const List&>(*array);
  at::Tensor offsets = at::zeros({list.length() + 1}, at::kLong);
  if (list.length() == 0) return {.values = at::empty({0}, type), .offsets = offsets};
  const int64_t first = list.value_offset(0);
  auto* to = offsets.data_ptr<int64_t>();
  for (int64_t i = 0; i <= list.length(); ++i) to[i] = list.value_offset(i) - first;
  return {.values = numbers(place, list.values()->Slice(first, to[list.length()]), type, null_fill),
          .offsets = offsets};
}

}  // namespace

ParquetColumn parquet_column(const std::string& path, const arrow::Field& field) {
  ParquetColumn column{.name = field.name()};
  const arrow::DataType* value = field.type().get();
  if (value->id() == arrow::Type::FIXED_SIZE_LIST) {
    const auto& list = static_cast<const arrow::FixedSizeListType&>(*value);
    column.shape = ParquetShape::kFixedList;
    column.length = list.list_size();
    value = list.value_type().get();
  } else if (value->id() == arrow::Type::LIST || value->id() == arrow::Type::LARGE_LIST) {
    column.shape = ParquetShape::kList;
    column.length = 0;
    value = static_cast<const arrow::BaseListType&>(*value).value_type().get();
  }
  const std::optional<at::ScalarType> type = type_of(*value);
  if (!type)
    throw DataError(
        path, "column '" + field.name() + "'",
        "bool, an integer of at most 64 bits but uint64, a floating-point number, or a list of them",
        field.type()->ToString());
  column.type = *type;
  return column;
}

void check_null_fill(const ParquetColumn& column, double fill) {
  if (at::isFloatingType(column.type)) return;
  const bool is_bool = column.type == at::kBool;
  const int bits = is_bool ? 1 : static_cast<int>(8 * c10::elementSize(column.type));
  const bool is_unsigned = is_bool || column.type == at::kByte;
  const double below = std::ldexp(1.0, is_unsigned ? bits : bits - 1);
  const double least = is_unsigned ? 0 : -below;
  if (!(fill >= least && fill < below && std::trunc(fill) == fill))
    throw std::invalid_argument("[ParquetFile] null_fill: expected a value of column '" + column.name +
                                "', of type " + c10::toString(column.type) + ", but got " +
                                std::to_string(fill));
}

ParquetValues parquet_values(const std::string& place, const ParquetColumn& column,
                             const std::shared_ptr<arrow::Array>& array, std::optional<double> null_fill) {
  if (column.shape == ParquetShape::kNumber)
    return {.values = numbers(place, array, column.type, null_fill), .offsets = {}};
  if (array->null_count() > 0)
    throw DataError(place + ": expected no list that is null, but got " +
                    std::to_string(array->null_count()));
  if (array->type_id() == arrow::Type::LIST)
    return lists<arrow::ListArray>(place, array, column.type, null_fill);
  if (array->type_id() == arrow::Type::LARGE_LIST)
    return lists<arrow::LargeListArray>(place, array, column.type, null_fill);
  const auto& list = static_cast<const arrow::FixedSizeListArray&>(*array);
  const auto values = list.values()->Slice(list.value_offset(0), list.length() * column.length);
  return {.values = numbers(place, values, column.type, null_fill).view({list.length(), column.length}),
          .offsets = {}};
}

}  // namespace lockstep
