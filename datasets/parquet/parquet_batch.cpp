#include "lockstep/datasets/parquet/parquet_batch.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "lockstep/datasets/parquet/internal/row_gatherer.h"

namespace lockstep {

int64_t ParquetBatch::size() const {
  return num_rows(columns.at(0));
}

ParquetBatch ParquetBatch::slice(int64_t begin, int64_t end) const {
  ParquetBatch rows;
  for (const ParquetValues& column : columns) rows.columns.push_back(slice_rows(column, begin, end));
  return rows;
}

ParquetBatch ParquetBatch::select(const at::Tensor& indices) const {
  const int64_t count = indices.numel();
  const at::Tensor contiguous = indices.contiguous();
  const auto* rows = contiguous.const_data_ptr<int64_t>();
  const int64_t size = this->size();
  if (std::any_of(rows, rows + count, [&](int64_t row) { return row < 0 || row >= size; }))
    throw std::invalid_argument("[ParquetBatch] expected indices below " + std::to_string(size));
  std::vector<ParquetValues> all = columns;
  for (ParquetValues& column : all) column.values = column.values.contiguous();
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), int64_t{0});
  RowGatherer gatherer(count);
  gatherer.add(all, {rows, static_cast<size_t>(count)}, places);
  return {gatherer.finish()};
}

ParquetBatch ParquetBatch::cat(const std::vector<ParquetBatch>& batches) {
  ParquetBatch all;
  for (size_t i = 0; i < batches.at(0).columns.size(); ++i) {
    std::vector<ParquetValues> parts;
    for (const ParquetBatch& batch : batches) parts.push_back(batch.columns.at(i));
    all.columns.push_back(cat_rows(parts));
  }
  return all;
}

}  // namespace lockstep
