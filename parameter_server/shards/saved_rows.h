#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

/// Consecutive rows of a table that grows.
struct RowPiece {
  at::Tensor values;
  /// The optimizer's state by row; then "rows", numbers within the table, and "row_last_update".
  std::vector<std::pair<std::string, at::Tensor>> state;

  /// Returns the state of this name; undefined if there is none.
  at::Tensor find(const std::string& name) const;
};

/// Saved rows of a table that grows, the row unused for longest first, which are read once and in pieces, so
/// that they need not fit into memory. Not thread-safe.
class SavedRows {
 public:
  virtual ~SavedRows() = default;

  /// Returns the next rows, of about a megabyte; none at the end. Throws InvalidArgument naming a part that
  /// no table has, and CheckpointError if the rows cannot be read.
  virtual std::optional<RowPiece> next() = 0;
  /// Returns how many of all rows are in this range of the table. Throws as next() does.
  virtual int64_t count_in(const RowRange& rows) const = 0;
};

/// Returns how many rows of so many bytes next() returns.
int64_t rows_of_piece(int64_t row_bytes);
/// Returns how many of these numbers, an int64 vector, are in the range.
int64_t count_in_range(const at::Tensor& numbers, const RowRange& rows);

/// Rows whose tensors are in memory, or in mapped files.
class TensorRows : public SavedRows {
 public:
  /// Throws InvalidArgument naming a part without a row for each of the values.
  explicit TensorRows(RowPiece all);

  std::optional<RowPiece> next() override;
  int64_t count_in(const RowRange& rows) const override;

 private:
  const RowPiece all_;
  int64_t next_ = 0;
};

}  // namespace lockstep
