#include "lockstep/datasets/clicks/internal/index_place.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// FNV-1a, whose values do not depend on the compiler as those of std::hash do.
uint64_t stable_hash(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value == nullptr ? "" : value;
}

/// Returns an empty path if the environment names no folder.
fs::path user_cache_folder() {
  const fs::path cache = environment("XDG_CACHE_HOME");
  if (cache.is_absolute()) return cache / "lockstep" / "clicks";
  const fs::path home = environment("HOME");
  return home.is_absolute() ? home / ".cache" / "lockstep" / "clicks" : fs::path();
}

IndexPlace place_in(const fs::path& folder, const std::string& name) {
  return {.index = folder / (name + ".index"), .rows = folder / (name + ".rows")};
}

}  // namespace

std::vector<IndexPlace> index_places(const std::string& file, const std::string& index_folder) {
  std::error_code error;
  fs::path whole = fs::canonical(file, error);
  if (error) whole = fs::absolute(file, error);
  const std::string name = whole.filename();
  // In a folder for files of several folders, equal names must not meet.
  std::array<char, 17> hash{};
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(stable_hash(whole.string())));
  const std::string shared_name = name + "-" + hash.data();
  if (!index_folder.empty()) return {place_in(index_folder, shared_name)};
  std::vector<IndexPlace> places{place_in(whole.parent_path() / ".lockstep", name)};
  if (const fs::path cache = user_cache_folder(); !cache.empty())
    places.push_back(place_in(cache, shared_name));
  return places;
}

}  // namespace lockstep
