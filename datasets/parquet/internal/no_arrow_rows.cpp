#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/parquet_rows.h"

namespace lockstep {

std::shared_ptr<const ParquetRows> open_parquet(const ParquetFileOptions& options) {
  throw DataError(
      options.path +
      ": this Lockstep was built without Apache Arrow, which reads Parquet files. Install Arrow's C++ "
      "libraries with Parquet, or run scripts/setup.sh, which fetches them, and build with "
      "-DLOCKSTEP_ARROW=ON (docs/building.md)");
}

}  // namespace lockstep
