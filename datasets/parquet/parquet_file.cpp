#include "lockstep/datasets/parquet/parquet_file.h"

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/internal/parquet_rows.h"

namespace lockstep {

namespace {

void check_row_group(const ParquetRows& rows, int row_group) {
  const size_t groups = rows.rows_of_groups().size();
  if (row_group < 0 || static_cast<size_t>(row_group) >= groups)
    throw std::out_of_range("[ParquetFile] " + rows.path() + ": expected a row group below " +
                            std::to_string(groups) + ", but got " + std::to_string(row_group));
}

int64_t bytes_of(const std::vector<ParquetValues>& columns) {
  size_t bytes = 0;
  for (const ParquetValues& column : columns)
    bytes += column.values.nbytes() + (column.offsets.defined() ? column.offsets.nbytes() : 0);
  return static_cast<int64_t>(bytes);
}

void check_order(c10::ArrayRef<uint32_t> order, int64_t rows) {
  bool are_different = order.size() == static_cast<size_t>(rows);
  std::vector<bool> is_taken(are_different ? order.size() : 0);
  for (size_t i = 0; are_different && i < order.size(); ++i) {
    are_different = order[i] < is_taken.size() && !is_taken[order[i]];
    if (are_different) is_taken[order[i]] = true;
  }
  if (!are_different)
    throw std::invalid_argument("[ParquetFile] order: expected each number below " + std::to_string(rows) +
                                " once");
}

}  // namespace

// The times include those of the store, which the file takes off again.
ParquetFile::ParquetFile(const ParquetFileOptions& options)
    : times_(options.times),
      rows_(ReadTimes::timed(times_.get(), ReadPart::kDecode, [&] { return open_parquet(options); })) {}

const std::string& ParquetFile::path() const {
  return rows_->path();
}

const std::vector<ParquetColumn>& ParquetFile::columns() const {
  return rows_->columns();
}

int ParquetFile::num_row_groups() const {
  return static_cast<int>(rows_->rows_of_groups().size());
}

int64_t ParquetFile::num_rows() const {
  const std::vector<int64_t>& rows = rows_->rows_of_groups();
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

int64_t ParquetFile::num_rows(int row_group) const {
  check_row_group(*rows_, row_group);
  return rows_->rows_of_groups()[static_cast<size_t>(row_group)];
}

int64_t ParquetFile::decoded_bytes(int row_group) const {
  check_row_group(*rows_, row_group);
  return rows_->decoded_bytes(row_group);
}

std::optional<int64_t> ParquetFile::num_values(int row_group, size_t column) const {
  check_row_group(*rows_, row_group);
  if (column >= columns().size())
    throw std::out_of_range("[ParquetFile] " + path() + ": expected a column below " +
                            std::to_string(columns().size()) + ", but got " + std::to_string(column));
  return rows_->num_values(row_group, column);
}

std::optional<ParquetRange> ParquetFile::range_of(int row_group, const std::string& column) const {
  check_row_group(*rows_, row_group);
  return rows_->range_of(row_group, column);
}

std::string ParquetFile::identity() const {
  return rows_->identity();
}

std::vector<ParquetValues> ParquetFile::read_row_group(int row_group, c10::ArrayRef<uint32_t> order) const {
  check_row_group(*rows_, row_group);
  if (!order.empty()) check_order(order, num_rows(row_group));
  auto values = ReadTimes::timed(times_.get(), ReadPart::kDecode,
                                 [&] { return rows_->read_row_group(row_group, order); });
  if (times_) times_->add_decoded(num_rows(row_group), bytes_of(values));
  return values;
}

}  // namespace lockstep
