#pragma once

#include <parquet/metadata.h>

#include <optional>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns the range of a column's values in a row group, as in ParquetFile::range_of(). Throws
/// parquet::ParquetException if the metadata is damaged.
std::optional<ParquetRange> column_range(const parquet::ColumnChunkMetaData& column);

}  // namespace lockstep
