#include "lockstep/datasets/parquet/internal/arrow_values.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <arrow/array.h>
#include <arrow/type.h>
#include <arrow/util/bit_run_reader.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

namespace {

using ArrayPointer = std::shared_ptr<arrow::Array>;

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

// Numbers of at most 18 digits are the lower half of the 128 bits.
at::Tensor lower_halves(const arrow::Decimal128Array& array) {
  at::Tensor values = at::empty({array.length()}, at::kLong);
  auto* to = values.data_ptr<int64_t>();
  for (int64_t i = 0; i < array.length(); ++i)
    std::memcpy(to + i, array.GetValue(i), sizeof(int64_t));  // little-endian, as all that Lockstep runs on
  return values;
}

// The tensor writes into memory that nothing else reads: a row group is decoded anew for each call.
at::Tensor shared(const ArrayPointer& owner, const uint8_t* bytes, int64_t count, at::ScalarType type) {
  if (count == 0) return at::empty({0}, type);
  return at::from_blob(
      const_cast<uint8_t*>(bytes), {count}, [owner](void*) {}, type);
}

at::Tensor shared_numbers(const ArrayPointer& array, at::ScalarType type) {
  const arrow::ArrayData& data = *array->data();
  if (data.length == 0) return at::empty({0}, type);
  const auto offset = data.offset * static_cast<int64_t>(c10::elementSize(type));
  return shared(array, data.buffers[1]->data() + offset, data.length, type);
}

void check_fits_int64(const std::string& place, const arrow::UInt64Array& array) {
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < array.length(); ++i)
    if (array.Value(i) > kLargest && array.IsValid(i))
      throw DataError(place, "a value of type uint64", "at most " + std::to_string(kLargest),
                      std::to_string(array.Value(i)));
}

/// Elements that are null may have any value.
at::Tensor numbers_with_nulls(const std::string& place, const ArrayPointer& array, at::ScalarType type) {
  switch (array->type_id()) {
    case arrow::Type::BOOL:
      return unpacked_bools(static_cast<const arrow::BooleanArray&>(*array));
    case arrow::Type::UINT16:
      return widened<uint16_t, int32_t>(*array->data(), type);
    case arrow::Type::UINT32:
      return widened<uint32_t, int64_t>(*array->data(), type);
    case arrow::Type::UINT64:
      check_fits_int64(place, static_cast<const arrow::UInt64Array&>(*array));
      return shared_numbers(array, type);
    case arrow::Type::DECIMAL128:
      return lower_halves(static_cast<const arrow::Decimal128Array&>(*array));
    default:
      return shared_numbers(array, type);
  }
}

/// Writes `fill` to the places that are null. Only these are visited, which are few in most columns.
void fill_nulls(const arrow::Array& array, const at::Tensor& values, double fill) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kBool, at::kHalf, values.scalar_type(), "fill_nulls", [&] {
    auto* to = values.mutable_data_ptr<scalar_t>();
    const auto value = static_cast<scalar_t>(fill);
    int64_t end = 0;  // of the run of valid elements before
    arrow::internal::VisitSetBitRunsVoid(array.null_bitmap_data(), array.offset(), array.length(),
                                         [&](int64_t begin, int64_t length) {
                                           std::fill(to + end, to + begin, value);
                                           end = begin + length;
                                         });
    std::fill(to + end, to + array.length(), value);
  });
}

at::Tensor numbers(const std::string& place, const ArrayPointer& array, at::ScalarType type,
                   std::optional<double> fill) {
  const int64_t nulls = array->null_count();
  if (nulls > 0 && !fill) throw_nulls(place, nulls);
  at::Tensor values = numbers_with_nulls(place, array, type);
  if (nulls == 0) return values;
  fill_nulls(*array, values, *fill);
  return values;
}

/// Returns where the elements of each row begin in those of all rows.
template <typename Array>
at::Tensor offsets_of(const Array& array) {
  at::Tensor offsets = at::zeros({array.length() + 1}, at::kLong);
  if (array.length() == 0) return offsets;
  const int64_t first = array.value_offset(0);
  auto* to = offsets.data_ptr<int64_t>();
  for (int64_t i = 0; i <= array.length(); ++i) to[i] = array.value_offset(i) - first;
  return offsets;
}

int64_t last_of(const at::Tensor& offsets) {
  return offsets.data_ptr<int64_t>()[offsets.numel() - 1];
}

template <typename List>
ParquetValues lists(const std::string& place, const ArrayPointer& array, at::ScalarType type,
                    std::optional<double> fill) {
  const auto& list = static_cast<const List&>(*array);
  const at::Tensor offsets = offsets_of(list);
  if (last_of(offsets) == 0) return {.values = at::empty({0}, type), .offsets = offsets};
  const auto elements = list.values()->Slice(list.value_offset(0), last_of(offsets));
  return {.values = numbers(place, elements, type, fill), .offsets = offsets};
}

template <typename Bytes>
ParquetValues shared_bytes(const ArrayPointer& array) {
  const auto& bytes = static_cast<const Bytes&>(*array);
  const at::Tensor offsets = offsets_of(bytes);
  if (last_of(offsets) == 0) return {.values = at::empty({0}, at::kByte), .offsets = offsets};
  const uint8_t* first = bytes.value_data()->data() + bytes.value_offset(0);
  return {.values = shared(array, first, last_of(offsets), at::kByte), .offsets = offsets};
}

/// The entry of the dictionary for each row, in the dictionary's type.
template <typename Bytes>
ParquetValues dictionary_bytes(const arrow::DictionaryArray& array) {
  const auto& entries = static_cast<const Bytes&>(*array.dictionary());
  const auto entry = [&](int64_t row) -> std::string_view {
    return array.IsNull(row) ? std::string_view{} : entries.GetView(array.GetValueIndex(row));
  };
  at::Tensor offsets = at::zeros({array.length() + 1}, at::kLong);
  auto* ends = offsets.data_ptr<int64_t>();
  for (int64_t i = 0; i < array.length(); ++i) ends[i + 1] = ends[i] + static_cast<int64_t>(entry(i).size());
  at::Tensor values = at::empty({last_of(offsets)}, at::kByte);
  auto* to = values.data_ptr<uint8_t>();
  for (int64_t i = 0; i < array.length(); ++i) to = std::copy(entry(i).begin(), entry(i).end(), to);
  return {.values = values, .offsets = offsets};
}

bool is_large(arrow::Type::type type) {
  return type == arrow::Type::LARGE_STRING || type == arrow::Type::LARGE_BINARY;
}

ParquetValues bytes(const ArrayPointer& array) {
  if (array->type_id() != arrow::Type::DICTIONARY)
    return is_large(array->type_id()) ? shared_bytes<arrow::LargeBinaryArray>(array)
                                      : shared_bytes<arrow::BinaryArray>(array);
  const auto& encoded = static_cast<const arrow::DictionaryArray&>(*array);
  return is_large(encoded.dictionary()->type_id()) ? dictionary_bytes<arrow::LargeBinaryArray>(encoded)
                                                   : dictionary_bytes<arrow::BinaryArray>(encoded);
}

at::Tensor matrix(const std::string& place, const ParquetColumn& column, const ArrayPointer& array,
                  std::optional<double> fill) {
  if (array->type_id() == arrow::Type::FIXED_SIZE_BINARY) {
    const auto& rows = static_cast<const arrow::FixedSizeBinaryArray&>(*array);
    return shared(array, rows.raw_values(), rows.length() * column.length, at::kByte)
        .view({rows.length(), column.length});
  }
  const auto& list = static_cast<const arrow::FixedSizeListArray&>(*array);
  const auto elements = list.values()->Slice(list.value_offset(0), list.length() * column.length);
  return numbers(place, elements, column.type, fill).view({list.length(), column.length});
}

/// Strings become binaries, as tensors may hold bytes that are no UTF-8.
ArrayPointer without_encoding(const std::string& place, const ArrayPointer& array) {
  const bool is_text = array->type_id() == arrow::Type::STRING;
  if (!is_text && array->type_id() != arrow::Type::LARGE_STRING) return array;
  auto binary = array->View(is_text ? arrow::binary() : arrow::large_binary());
  if (!binary.ok()) throw DataError(place + ": " + binary.status().message());
  return std::move(binary).ValueUnsafe();
}

}  // namespace

void throw_nulls(const std::string& place, int64_t nulls) {
  throw DataError(place + ": expected no nulls, but got " + std::to_string(nulls) +
                  "; null_fill sets a number to stand for them");
}

ParquetValues parquet_values(const std::string& place, const ParquetColumn& column, ArrayPointer array,
                             const NullRule& nulls) {
  array = without_encoding(place, array);
  const arrow::Status status = array->ValidateFull();
  if (!status.ok()) throw DataError(place + ": " + status.message());
  if (column.shape == ParquetShape::kNumber)
    return {.values = numbers(place, array, column.type, nulls.fill), .offsets = {}};

  const bool has_length = column.shape == ParquetShape::kFixedList;
  if (array->null_count() > 0 && (has_length || !nulls.lists_are_empty))
    throw DataError(place + ": expected no " + (column.shape == ParquetShape::kBytes ? "value" : "list") +
                    " that is null, but got " + std::to_string(array->null_count()) +
                    (has_length ? "" : "; null_lists_are_empty makes them empty"));
  if (has_length) return {.values = matrix(place, column, array, nulls.fill), .offsets = {}};
  if (column.shape == ParquetShape::kBytes) return bytes(array);
  // Parquet stores no elements for null lists, so that Arrow's are empty.
  if (array->type_id() == arrow::Type::LIST)
    return lists<arrow::ListArray>(place, array, column.type, nulls.fill);
  return lists<arrow::LargeListArray>(place, array, column.type, nulls.fill);
}

}  // namespace lockstep
