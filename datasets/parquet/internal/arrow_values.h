#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/datasets/parquet/internal/null_rule.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns the values of an array of the column. They own the array, and share its memory if their types
/// agree. Throws DataError beginning with `place` if the array is damaged, or holds nulls that are refused or
/// a number that the column's type does not hold.
ParquetValues parquet_values(const std::string& place, const ParquetColumn& column,
                             std::shared_ptr<arrow::Array> array, const NullRule& nulls);

/// Throws the DataError for nulls that are refused.
[[noreturn]] void throw_nulls(const std::string& place, int64_t nulls);

}  // namespace lockstep
