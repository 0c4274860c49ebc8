#include "lockstep/datasets/parquet/internal/decoded_size.h"

#include <c10/core/ScalarType.h>
#include <parquet/metadata.h>
#include <parquet/size_statistics.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

namespace lockstep {

namespace {

// Damaged metadata may hold any number: results that are too large for int64 become its largest.
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

/// Returns the number of all lists' elements. None without a histogram of definition levels.
std::optional<int64_t> known_elements(const parquet::ColumnChunkMetaData& chunk, int element_level) {
  const std::shared_ptr<parquet::SizeStatistics> sizes = chunk.size_statistics();
  if (!sizes || sizes->definition_level_histogram.size() <= static_cast<size_t>(element_level))
    return std::nullopt;
  const auto& entries = sizes->definition_level_histogram;
  return std::max<int64_t>(0,
                           std::accumulate(entries.begin() + element_level, entries.end(), int64_t{0}, sum));
}

/// Returns the number of all lists' elements. If that is not known, empty and null lists count as one element
/// each.
int64_t num_elements(const parquet::ColumnChunkMetaData& chunk, int element_level) {
  return known_elements(chunk, element_level).value_or(std::max<int64_t>(0, chunk.num_values()));
}

/// Returns the number of all strings' or binaries' bytes, or an estimate.
int64_t num_bytes(const parquet::ColumnChunkMetaData& chunk) {
  if (chunk.num_values() == 0) return 0;
  const std::shared_ptr<parquet::SizeStatistics> sizes = chunk.size_statistics();
  const bool is_known = sizes && sizes->unencoded_byte_array_data_bytes;
  return std::max<int64_t>(
      0, is_known ? *sizes->unencoded_byte_array_data_bytes : chunk.total_uncompressed_size());
}

}  // namespace

int64_t decoded_bytes(const ParquetColumn& column, int64_t rows, const parquet::ColumnChunkMetaData& chunk,
                      int element_level) {
  const auto bytes_of_value = static_cast<int64_t>(c10::elementSize(column.type));
  if (column.shape == ParquetShape::kNumber || column.shape == ParquetShape::kFixedList)
    return product(product(rows, column.length), bytes_of_value);
  const int64_t offsets = product(sum(rows, 1), sizeof(int64_t));
  if (column.shape == ParquetShape::kBytes) return sum(offsets, num_bytes(chunk));
  return sum(offsets, product(num_elements(chunk, element_level), bytes_of_value));
}

std::optional<int64_t> num_values(const ParquetColumn& column, int64_t rows,
                                  const parquet::ColumnChunkMetaData& chunk, int element_level) {
  if (column.shape == ParquetShape::kBytes) return std::nullopt;
  if (column.shape == ParquetShape::kList) return known_elements(chunk, element_level);
  return product(rows, column.length);
}

}  // namespace lockstep
