#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_writer.h"

namespace lockstep {

/// The columns of write_numbered().
inline std::vector<ParquetColumn> numbered_columns() {
  return {{.name = "number", .type = at::kLong},
          {.name = "halves", .shape = ParquetShape::kFixedList, .length = 2, .type = at::kFloat},
          {.name = "bag", .shape = ParquetShape::kList, .length = 0, .type = at::kInt}};
}

/// Rows `first` to `first` + `count` - 1: row i has the number i, the halves {i / 2, -i / 2}, and a bag of
/// i % 4 times i.
inline std::vector<ParquetValues> numbered_rows(int64_t first, int64_t count) {
  const at::Tensor numbers = at::arange(first, first + count, at::kLong);
  const at::Tensor halves = numbers.to(at::kFloat) / 2;
  const at::Tensor lengths = numbers.remainder(4);
  return {{.values = numbers, .offsets = {}},
          {.values = at::stack({halves, -halves}, 1), .offsets = {}},
          {.values = at::repeat_interleave(numbers, lengths).to(at::kInt),
           .offsets = at::cat({at::zeros({1}, at::kLong), lengths.cumsum(0)})}};
}

/// Writes a file with rows `first` to `first` + `count` - 1.
inline void write_numbered(const std::string& path, int64_t first, int64_t count, int64_t rows_per_group) {
  ParquetWriter writer({.path = path, .columns = numbered_columns(), .rows_per_group = rows_per_group});
  writer.append(numbered_rows(first, count));
  writer.close();
}

}  // namespace lockstep
