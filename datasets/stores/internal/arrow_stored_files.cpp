#include <arrow/filesystem/filesystem.h>
#include <fnmatch.h>

#include <algorithm>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/find_files.h"
#include "lockstep/datasets/stores/internal/arrow_store.h"
#include "lockstep/datasets/stores/internal/stored_files.h"

namespace lockstep {

namespace {

using arrow::fs::FileInfo;
using arrow::fs::FileType;

constexpr const char* kPatterns = "*[";

std::vector<FileInfo> entries_of(const ArrowStore& store, const std::string& folder) {
  arrow::fs::FileSelector selector;
  selector.base_dir = folder;
  return store.value_or_throw(store.uri().name(), store.files().GetFileInfo(selector));
}

/// Returns the entries that match a pattern, whose first `depth` characters name the folder to list.
std::vector<FileInfo> matches_of(const ArrowStore& store, const std::string& pattern, size_t depth) {
  const size_t end = std::min(pattern.find('/', depth + 1), pattern.size());
  const std::string level = pattern.substr(depth + 1, end - depth - 1);
  std::vector<FileInfo> found;
  for (const FileInfo& entry : entries_of(store, pattern.substr(0, depth))) {
    if (::fnmatch(level.c_str(), entry.base_name().c_str(), FNM_PERIOD) != 0) continue;
    if (end == pattern.size()) {
      found.push_back(entry);
    } else if (entry.IsDirectory()) {
      const auto below = matches_of(store, entry.path() + pattern.substr(end), entry.path().size());
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

std::vector<FileInfo> files_of_folder(const ArrowStore& store, const std::string& folder) {
  auto entries = entries_of(store, folder);
  std::erase_if(entries, [](const FileInfo& entry) {
    const std::string name = entry.base_name();
    return name.empty() || name[0] == '.' || name[0] == '_';
  });
  return entries;
}

std::string without_last_slashes(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::vector<std::string> stored_files(const DataUri& uri, int attempts) {
  const ArrowStore store(uri, attempts);
  const std::string name = uri.name();
  const std::string file = store.file_of(without_last_slashes(uri.path));
  const FileInfo info = store.value_or_throw(name, store.files().GetFileInfo(file));
  // A file whose name has characters of patterns is taken by its name.
  if (info.IsFile()) return {uri.with_path(uri.path)};
  const bool is_pattern = uri.path.find_first_of(kPatterns) != std::string::npos;
  std::vector<FileInfo> entries;
  if (is_pattern)
    entries = matches_of(store, file, file.rfind('/', file.find_first_of(kPatterns)));
  else if (info.type() == FileType::NotFound)
    throw DataError(name + ": there is no such file, folder or bucket");
  else
    entries = files_of_folder(store, file);

  std::vector<std::string> files;
  for (const FileInfo& entry : entries)
    if (entry.IsFile()) files.push_back(entry.path());
  if (files.empty())
    throw DataError(name + ": expected files " + (is_pattern ? "that match this pattern" : "in this folder") +
                    ", but found none");
  std::sort(files.begin(), files.end(), natural_less);
  for (std::string& found : files) found = uri.with_path(store.path_of(found));
  return files;
}

}  // namespace lockstep
