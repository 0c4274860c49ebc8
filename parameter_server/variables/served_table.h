#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/row_filter.h"

namespace lockstep {

class ServedTable;

/// The rows of a table that some ids come to, on the CPU.
struct TableRows {
  at::Tensor rows;    ///< their numbers, an int64 vector, strictly ascending
  at::Tensor places;  ///< for each id, in the ids' shape, where its row is among them
  at::Tensor values;  ///< a copy of these rows
};

/// Reads rows of tables that are kept elsewhere.
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// The rows of ids of any shape. Blocks. Thread-safe. Throws as ServedTable::rows_of() and
  /// ParameterClient::pull().
  virtual TableRows look_up(const ServedTable& table, const at::Tensor& ids) = 0;
  /// A copy of rows `begin` to `end` - 1, which the table has. Blocks. Thread-safe. Throws
  /// InvalidArgument where no optimizer has the table yet, and as ParameterClient::pull().
  virtual at::Tensor read_rows(const ServedTable& table, int64_t begin, int64_t end) = 0;
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
  /// The number of each id's row, of the ids' shape and on their device. Thread-safe. Throws InvalidArgument
  /// for ids of another dtype than int64, and on the CPU for those of no row.
  virtual at::Tensor rows_of(const at::Tensor& ids) const = 0;
  virtual InitialValues initial_values() const = 0;
  virtual RowFilter row_filter() const = 0;
};

}  // namespace lockstep
