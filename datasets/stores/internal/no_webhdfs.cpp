#include <arrow/filesystem/filesystem.h>

#include "lockstep/datasets/stores/internal/webhdfs_files.h"

namespace lockstep {

arrow::Result<std::shared_ptr<arrow::fs::FileSystem>> open_webhdfs(const DataUri&, int) {
  return arrow::Status::NotImplemented(
      "this Lockstep was built without libcurl, which reads HDFS over HTTP. Install libcurl with its headers "
      "(Debian: libcurl4-openssl-dev), and build with -DLOCKSTEP_CURL=ON (docs/building.md)");
}

}  // namespace lockstep
