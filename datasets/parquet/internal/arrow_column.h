#pragma once

#include <arrow/type_fwd.h>

#include <string>

#include "lockstep/datasets/parquet/internal/null_rule.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns how a field is read. Throws DataError naming the file and the column if its type is not supported.
ParquetColumn parquet_column(const std::string& path, const arrow::Field& field);

/// Returns whether values of the type include the number.
bool holds_number(at::ScalarType type, double number);

/// Returns the options' rule for a column's nulls. Throws std::invalid_argument naming the column if its
/// type does not hold the number that stands for nulls.
NullRule null_rule(const ParquetFileOptions& options, const ParquetColumn& column);

}  // namespace lockstep
