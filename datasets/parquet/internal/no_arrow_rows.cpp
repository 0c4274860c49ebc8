#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/parquet_row_writer.h"
#include "lockstep/datasets/parquet/internal/parquet_rows.h"

namespace lockstep {

namespace {

[[noreturn]] void refuse(const std::string& path) {
  throw DataError(
      path +
      ": this Lockstep was built without Apache Arrow, which reads and writes Parquet files. Install Arrow's "
      "C++ libraries with Parquet, or run scripts/setup.sh, which fetches them, and build with "
      "-DLOCKSTEP_ARROW=ON (docs/building.md)");
}

}  // namespace

std::shared_ptr<const ParquetRows> open_parquet(const ParquetFileOptions& options) {
  refuse(options.path);
}

std::unique_ptr<ParquetRowWriter> write_parquet(const ParquetWriterOptions& options) {
  refuse(options.path);
}

}  // namespace lockstep
