#pragma once

#include <arrow/filesystem/type_fwd.h>
#include <arrow/result.h>

#include <memory>

#include "lockstep/datasets/stores/internal/data_uri.h"

namespace lockstep {

/// Returns the file system of a webhdfs:// or swebhdfs:// URI, for reading; nothing is sent yet. Paths begin
/// with /. A request is sent at most `attempts` times. The error of builds without libcurl says what to
/// install. Throws DataError if the URI has a password or an unknown option.
arrow::Result<std::shared_ptr<arrow::fs::FileSystem>> open_webhdfs(const DataUri& uri, int attempts);

}  // namespace lockstep
