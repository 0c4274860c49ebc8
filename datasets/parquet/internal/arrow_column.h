#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns how a field is read. Throws DataError naming the file and the column if its type is not supported.
ParquetColumn parquet_column(const std::string& path, const arrow::Field& field);

/// Throws std::invalid_argument naming the column if its type does not hold the value.
void check_null_fill(const ParquetColumn& column, double fill);

/// Returns the values of an array of the column. They own the array, and share its memory if their types
/// agree. Throws DataError beginning with `place` if there are nulls that are refused, or a list of another
/// length.
ParquetValues parquet_values(const std::string& place, const ParquetColumn& column,
                             const std::shared_ptr<arrow::Array>& array, std::optional<double> null_fill);

}  // namespace lockstep
