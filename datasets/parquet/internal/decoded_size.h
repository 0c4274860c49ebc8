#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace parquet {
class ColumnChunkMetaData;
}

namespace lockstep {

/// Returns the bytes of the tensors that a column chunk of `rows` rows is read into, as
/// ParquetFile::decoded_bytes() describes. `element_level` is the definition level from which on an entry of
/// the chunk is an element of a list, rather than an empty or a null list.
int64_t decoded_bytes(const ParquetColumn& column, int64_t rows, const parquet::ColumnChunkMetaData& chunk,
                      int element_level);

/// Returns the number of the chunk's values as ParquetFile::num_values() does.
std::optional<int64_t> num_values(const ParquetColumn& column, int64_t rows,
                                  const parquet::ColumnChunkMetaData& chunk, int element_level);

}  // namespace lockstep
