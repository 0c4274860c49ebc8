#pragma once

#include <string>
#include <vector>

#include "lockstep/datasets/stores/internal/data_uri.h"

namespace lockstep {

/// Returns the URIs of the files that a URI names, in natural order: see find_parquet_files(). Throws
/// DataError in builds without Arrow.
std::vector<std::string> stored_files(const DataUri& uri, int attempts);

}  // namespace lockstep
