#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/stores/internal/stored_files.h"

namespace lockstep {

std::vector<std::string> stored_files(const DataUri& uri, int) {
  throw DataError(
      uri.name() +
      ": this Lockstep was built without Apache Arrow, which reads files of stores. Install "
      "Arrow's C++ libraries with Parquet, or run scripts/setup.sh, which fetches them, and build "
      "with -DLOCKSTEP_ARROW=ON (docs/building.md)");
}

}  // namespace lockstep
