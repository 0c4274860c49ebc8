#include "lockstep/datasets/parquet/internal/find_parquet_files.h"

#include <filesystem>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "lockstep/datasets/files/internal/find_files.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/stored_files.h"

namespace lockstep {

namespace {

/// The same for all names of a local file.
std::string identity_of(const std::string& file) {
  if (is_uri(file)) return file;
  std::error_code error;
  const auto canonical = std::filesystem::weakly_canonical(file, error);
  return error ? file : canonical.string();
}

}  // namespace

std::vector<std::string> find_parquet_files(const std::vector<std::string>& places, int store_attempts) {
  std::vector<std::string> files;
  std::unordered_set<std::string> seen;
  for (const std::string& place : places) {
    const std::string local = without_file_scheme(place);
    auto of_place = is_uri(local) ? stored_files(parse_uri(local), store_attempts) : find_data_files({local});
    for (std::string& file : of_place)
      if (seen.insert(identity_of(file)).second) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace lockstep
