#include <ATen/ops/empty.h>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/parquet_profile.h"
#include "lockstep/datasets/parquet/internal/parquet_row_writer.h"
#include "lockstep/datasets/parquet/internal/parquet_rows.h"
#include "lockstep/datasets/parquet/internal/recycled_tensor.h"
#include "lockstep/datasets/stores/internal/data_uri.h"

namespace lockstep {

namespace {

[[noreturn]] void throw_no_arrow(const std::string& name) {
  throw DataError(
      name +
      ": this Lockstep was built without Apache Arrow, which reads and writes Parquet files. Install "
      "Arrow's C++ libraries with Parquet, or run scripts/setup.sh, which fetches them, and build with "
      "-DLOCKSTEP_ARROW=ON (docs/building.md)");
}

}  // namespace

std::shared_ptr<const ParquetRows> open_parquet(const ParquetFileOptions& options) {
  throw_no_arrow(is_uri(options.path) ? parse_uri(options.path).name() : options.path);
}

std::shared_ptr<const ParquetProfile> open_profile(const std::string& path, int) {
  throw_no_arrow(is_uri(path) ? parse_uri(path).name() : path);
}

std::unique_ptr<ParquetRowWriter> write_parquet(const ParquetWriterOptions& options) {
  throw_no_arrow(options.path);
}

at::Tensor recycled_tensor(c10::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, type);
}

RecyclingLimit::RecyclingLimit(int64_t bytes) : bytes_(bytes) {}

RecyclingLimit::~RecyclingLimit() = default;

}  // namespace lockstep
