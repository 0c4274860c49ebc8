#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_writer.h"

namespace lockstep::apps {

/// The Parquet files that one input is written into. Not thread-safe.
class ParquetParts {
 public:
  /// The options' path is that of the file, or if `rows_per_file` is not 0, that of the files without
  /// "-00000.parquet".
  ParquetParts(ParquetWriterOptions options, int64_t rows_per_file);

  /// Adds rows. Throws as ParquetWriter.
  void append(const std::vector<ParquetValues>& rows);
  /// Completes the last file, which is made if there are no rows.
  void finish();

 private:
  void begin_file();

  ParquetWriterOptions options_;
  std::string stem_;
  int64_t rows_per_file_;
  int64_t num_files_ = 0;
  int64_t rows_in_file_ = 0;
  std::unique_ptr<ParquetWriter> writer_;
};

}  // namespace lockstep::apps
