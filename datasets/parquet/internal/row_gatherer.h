#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns the number of rows of a column's values.
int64_t num_rows(const ParquetValues& values);

/// Returns rows [begin, end). They share the values' memory.
ParquetValues slice_rows(const ParquetValues& values, int64_t begin, int64_t end);

/// Returns the rows of several values of one column, one after another.
ParquetValues cat_rows(const std::vector<ParquetValues>& parts);

/// Puts rows of several row groups with the same columns into one batch. For values on the CPU.
///
/// Example:
///
///     RowGatherer gatherer(3);
///     gatherer.add(first_group, /*rows=*/{5, 6}, /*places=*/{0, 2});
///     gatherer.add(second_group, /*rows=*/{0}, /*places=*/{1});
///     const std::vector<ParquetValues> columns = gatherer.finish();
class RowGatherer {
 public:
  /// Makes a batch of `count` rows.
  explicit RowGatherer(int64_t count) : count_(count) {}

  /// Copies `rows` of a row group to `places` of the batch. There must be as many of both.
  void add(const std::vector<ParquetValues>& group, c10::ArrayRef<int64_t> rows,
           c10::ArrayRef<int64_t> places);

  /// Returns the batch, each place of which must have been given a row by add().
  std::vector<ParquetValues> finish();

 private:
  /// A column's lists that one call of add() has copied, one after another.
  struct Lists {
    at::Tensor values;
    std::vector<int64_t> places;
    std::vector<int64_t> lengths;
  };
  struct Column {
    ParquetValues result;      // of numbers and lists of fixed length
    std::vector<Lists> lists;  // of any length
  };

  int64_t count_;
  std::vector<Column> columns_;
};

}  // namespace lockstep
