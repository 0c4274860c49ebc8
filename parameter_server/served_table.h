#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/parameter_server/initial_values.h"

namespace lockstep {

/// Reads rows of tables that are kept elsewhere.
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// A copy of these rows of the table that `parameter` stands for, on the CPU. `rows` is an int64 vector on
  /// the CPU, strictly ascending. Blocks. Thread-safe. Throws as ParameterClient::pull().
  virtual at::Tensor read_rows(const at::Tensor& parameter, const at::Tensor& rows) = 0;
};

/// A module whose table may be too large for a process. Made, it has a parameter of the table's shape that
/// has the memory of a single number, until the strategy in whose scope it was made calls one of the two.
/// Both are called by one thread, outside runs.
class ServedTable {
 public:
  virtual ~ServedTable() = default;
  /// Gives the parameter its memory, and the values that it begins with; once.
  virtual void make_table() = 0;
  /// Leaves the table to others: its rows are read by `reader`, and the parameter's gradient is sparse, with
  /// the rows that were read.
  virtual void read_from(std::shared_ptr<TableReader> reader) = 0;
  virtual const at::Tensor& table() const = 0;
  virtual InitialValues initial_values() const = 0;
};

}  // namespace lockstep
