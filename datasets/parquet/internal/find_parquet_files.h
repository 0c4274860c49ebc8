#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Returns the files that `places` name, in their order, as find_data_files() does. A place may also be a URI
/// of a file, of a folder, or with * and [...] in its path, as in s3://bucket/clicks/day_*.parquet; its files
/// are URIs with the same credentials and query. A file that several places name is listed once, at the
/// first.
///
/// Throws DataError naming the place, without credentials, if there is no such file, the folder has no file,
/// the pattern matches none, or the store cannot be read. A request is sent at most `store_attempts` times.
std::vector<std::string> find_parquet_files(const std::vector<std::string>& places, int store_attempts = 8);

}  // namespace lockstep
