#pragma once

#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep::apps {

/// Opens a Parquet file with the columns of a click log, whichever names ParquetClicks takes. Throws
/// DataError naming the file, and the column if its type is none of a click log's.
ParquetFile open_click_parquet(const std::string& path);

/// Returns the lines of a row group of such a file. Throws DataError naming file, row group, row and column
/// if a value is none of a click log.
std::string click_text(const ParquetFile& file, int row_group);

}  // namespace lockstep::apps
