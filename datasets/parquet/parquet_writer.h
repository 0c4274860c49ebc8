#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

struct ParquetWriterOptions {
  std::string path;
  std::vector<ParquetColumn> columns;
  int64_t rows_per_group = int64_t{1} << 17;  ///< rows of each row group but the last
  std::string compression = "zstd";           ///< "none", "snappy", "gzip", "lz4" or "zstd"
  /// This number is written as null in every column of numbers. Unset: nothing is.
  std::optional<double> null_value{};
  /// Names of columns of bytes that are written as strings, which must be UTF-8, rather than as binaries.
  std::vector<std::string> text_columns{};
};

class ParquetRowWriter;

/// Writes tensors as a Parquet file, with a checksum for each page. The file gets its name when it is
/// complete. Not thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetWriter writer({.path = "squares.parquet", .columns = {{.name = "square", .type = at::kLong}}});
///     writer.append({{.values = torch::arange(1000).square()}});
///     writer.close();
class ParquetWriter {
 public:
  /// Begins the file. Throws std::invalid_argument for invalid options, DataError if this build has no
  /// Arrow, and std::system_error naming the file if it cannot be written.
  explicit ParquetWriter(const ParquetWriterOptions& options);
  /// Gives up the file unless it was closed.
  ~ParquetWriter();
  ParquetWriter(const ParquetWriter&) = delete;
  ParquetWriter& operator=(const ParquetWriter&) = delete;

  /// Adds rows: the values of each column, on the CPU, of the columns' types and shapes. Throws
  /// std::invalid_argument naming the column if they are not, or columns have different numbers of rows.
  /// Writes the row groups that are full; blocks until they are on their way to the disk.
  void append(const std::vector<ParquetValues>& columns);
  /// Writes the last row group, and gives the file its name. Blocks until it is on the disk. Throws
  /// std::system_error naming the file if the system refuses.
  void close();

 private:
  std::unique_ptr<ParquetRowWriter> rows_;
};

}  // namespace lockstep
