#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <optional>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns the type that a column is written with. Throws std::invalid_argument naming the column if there is
/// none.
std::shared_ptr<arrow::DataType> arrow_type(const ParquetColumn& column);

/// Throws std::invalid_argument naming the column if the values are not of its type and shape.
void check_values(const ParquetColumn& column, const ParquetValues& values);

/// Returns the values as an array, which shares their memory if it can. Numbers equal to `null_value` are
/// nulls.
std::shared_ptr<arrow::Array> arrow_array(const ParquetColumn& column, const ParquetValues& values,
                                          std::optional<double> null_value);

}  // namespace lockstep
