#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep {

/// Returns the columns of ParquetWriter for click logs: label, I1 to I13 and C1 to C26, all int64 but the
/// label, which is int8.
std::vector<ParquetColumn> click_columns();
/// Stands for what is missing in click_values(): ParquetWriterOptions::null_value.
inline constexpr double kMissingClickValue = -0x1p63;
/// Returns the values of click_columns() in these rows.
std::vector<ParquetValues> click_values(const std::vector<ClickRow>& rows);

/// Click logs in Parquet files, with a column for each field of a ClickRow. Columns are named label, I1 to
/// I13 and C1 to C26, as in Criteo's logs, or label, int_0 to int_12 and cat_0 to cat_25, as TorchRec names
/// them; files may have others. Labels are 0 or 1 in any type. Numbers are integers or floating-point
/// numbers. Categories are integers of up to 32 bits, or strings of 8 hexadecimal digits. All but the label
/// may be null, which means missing, as does an empty string; in columns of int32, so does the lowest number,
/// and in columns of uint8 nulls are refused. A ChunkedDataset, like ParquetDataset. Copies share the files
/// and the memory. All functions are thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetClicks clicks({.paths = {"clicks/*.parquet"}});
///     auto batches = strategy.distribute_dataset(clicks, {.global_batch_size = 1024, .shuffle_seed = 1});
class ParquetClicks {
 public:
  /// `options` must not choose columns and how nulls are read. Throws as ParquetDataset(), and DataError
  /// naming the first file if it has not these columns, and the column if its type is none of these.
  explicit ParquetClicks(const ParquetDatasetOptions& options);

  std::optional<size_t> size() const { return rows_.size(); }
  /// Returns the rows in the order of `indices`, as click_batch() does. Throws as
  /// ParquetDataset::get_batch(), and DataError naming the file, the row and the column if a value is none of
  /// a click log.
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  /// As ParquetDataset::identity().
  std::string identity() const { return rows_.identity(); }

  /// Returns the rows as they are in the files.
  const ParquetDataset& rows() const { return rows_; }

  std::vector<size_t> chunk_sizes() const { return rows_.chunk_sizes(); }
  size_t max_open_chunks() const { return rows_.max_open_chunks(); }
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const {
    rows_.prefetch_chunks(chunks, order_within);
  }

 private:
  ParquetDataset rows_;
};

}  // namespace lockstep
