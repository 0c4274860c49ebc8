#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/row_filter.h"

namespace lockstep {

class ServedTable;

/// The rows of a table that some ids refer to, on the CPU.
struct TableRows {
  at::Tensor rows;     ///< row numbers, an int64 vector, strictly ascending
  at::Tensor indices;  ///< index into `rows` for each id, in the ids' shape
  at::Tensor values;   ///< a copy of these rows
};

/// Reads rows of tables that are kept elsewhere.
///
/// Example:
///
///     class MyReader : public TableReader {
///      public:
///       TableRows look_up(const ServedTable& table, const at::Tensor& ids) override;
///       at::Tensor read_rows(const ServedTable& table, int64_t begin, int64_t end) override;
///     };
class TableReader {
 public:
  virtual ~TableReader() = default;
  /// Returns the rows of ids of any shape. Blocks until they are read. Thread-safe. Throws as
  /// ServedTable::rows_of() and ParameterClient::pull().
  virtual TableRows look_up(const ServedTable& table, const at::Tensor& ids) = 0;
  /// Returns a copy of rows `begin` to `end` - 1, which must exist. Blocks until they are read. Thread-safe.
  /// Throws InvalidArgument if no optimizer has the table yet, and as ParameterClient::pull().
  virtual at::Tensor read_rows(const ServedTable& table, int64_t begin, int64_t end) = 0;
};

/// Interface of modules whose table may be too large for one process. A new module has a parameter of the
/// table's shape that takes the memory of a single number, until the strategy in whose scope it was created
/// calls make_table() or read_from(). Both are called by one thread, outside runs.
///
/// Example:
///
///     ShardedEmbedding embedding(ShardedEmbeddingOptions{.num_embeddings = 1000, .embedding_dim = 8});
///     ServedTable& table = *embedding;
///     auto rows = table.rows_of(torch::tensor({3, 7}, torch::kLong));
class ServedTable {
 public:
  virtual ~ServedTable() = default;
  /// Allocates the parameter and fills it with its initial values. Called once.
  virtual void make_table() = 0;
  /// Makes `reader` read the rows instead. The parameter's gradient is then sparse, with the rows that were
  /// read.
  virtual void read_from(std::shared_ptr<TableReader> reader) = 0;
  virtual const at::Tensor& table() const = 0;
  /// Returns the row number of each id, in the ids' shape and on their device. Thread-safe. Throws
  /// InvalidArgument if the ids are not int64 and, on the CPU, if an id has no row.
  virtual at::Tensor rows_of(const at::Tensor& ids) const = 0;
  virtual InitialValues initial_values() const = 0;
  virtual RowFilter row_filter() const = 0;
};

}  // namespace lockstep
