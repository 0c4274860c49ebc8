#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Rows of Parquet files, column by column. A BatchClass: strategies cut it into shards and move these to
/// devices. Lists of any length are bags of torch::nn::EmbeddingBag, whose offsets may include the end
/// (`include_last_offset`).
///
/// Example:
///
///     const ParquetBatch batch = dataset.get_batch({0, 7, 3});
///     const at::Tensor labels = batch.columns[0].values;
struct ParquetBatch {
  /// In the order of ParquetDataset::columns(). There is at least one.
  std::vector<ParquetValues> columns;

  /// Returns the number of rows.
  int64_t size() const;
  /// Returns rows [begin, end), which share the batch's memory except for the offsets of lists. Waits for the
  /// device of lists.
  ParquetBatch slice(int64_t begin, int64_t end) const;
  /// Returns the rows at `indices`, int64 [n] on the CPU, in their order. The batch must be on the CPU.
  /// Throws std::invalid_argument for an index that is not below size().
  ParquetBatch select(const at::Tensor& indices) const;
  /// Returns the rows of batches with the same columns, one after another. There must be at least one batch.
  static ParquetBatch cat(const std::vector<ParquetBatch>& batches);

  template <typename Visit>
  void for_each_tensor(const Visit& visit) {
    for (ParquetValues& column : columns) {
      visit(column.values);
      if (column.offsets.defined()) visit(column.offsets);
    }
  }
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    for (const ParquetValues& column : columns) {
      visit(column.values);
      if (column.offsets.defined()) visit(column.offsets);
    }
  }
};

}  // namespace lockstep
