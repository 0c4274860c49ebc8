#include "lockstep/apps/convert_data/output_place.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code ignored;
  // A dangling link also counts.
  return fs::exists(fs::symlink_status(path, ignored));
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Returns whether `path` is `folder` or lies in it.
bool is_within(const std::string& path, const std::string& folder) {
  std::error_code ignored;
  const fs::path inner = fs::weakly_canonical(path, ignored);
  const fs::path outer = fs::weakly_canonical(folder, ignored);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

[[noreturn]] void throw_refused(const std::string& path, const char* action, const std::error_code& error) {
  throw std::system_error(error, path + ": cannot " + action);
}

}  // namespace

OutputPlace::OutputPlace(Options options) : options_(std::move(options)) {
  std::string& path = options_.path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  if (is_folder(path)) path = fs::canonical(path, error).string();
  if (error) throw_refused(path, "be read", error);
  check_inputs();
  if (is_there(path)) {
    const bool is_empty = !options_.is_file && is_folder(path) && fs::is_empty(path, error);
    if (options_.is_file == is_folder(path))
      throw UsageError("OUT: expected a " + std::string(options_.is_file ? "file" : "folder") + ", but " +
                       path + " is a " + (options_.is_file ? "folder" : "file"));
    if (!is_empty && !options_.overwrites)
      throw UsageError("OUT: expected a new name, but " + path + " exists; --overwrite replaces it");
    if (!options_.is_file) check_folder();
  }
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) throw_refused(parent.string(), "create the folder", error);
  if (options_.is_file) return;
  const std::string folder = name_beside(path);
  if (!fs::create_directory(folder, error) || error) throw_refused(folder, "create the folder", error);
  staging_ = folder;
}

OutputPlace::~OutputPlace() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

void OutputPlace::check_inputs() const {
  for (const std::string& input : options_.inputs)
    if (is_within(input, options_.path))
      throw UsageError("OUT: expected another place than that of IN, but " + input + " is " +
                       (is_within(options_.path, input) ? "" : "in ") + options_.path);
}

void OutputPlace::check_folder() const {
  std::error_code error;
  fs::recursive_directory_iterator entry(options_.path, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().lexically_relative(options_.path).string();
    const auto kind = entry->symlink_status().type();
    if (kind == fs::file_type::directory) name += '/';
    const bool is_plain = kind == fs::file_type::directory || kind == fs::file_type::regular;
    if (!is_plain || !options_.is_own(name))
      throw UsageError("OUT: --overwrite replaces a folder of converted files, but " + options_.path +
                       " also has " + name);
  }
  if (error) throw_refused(options_.path, "list the folder", error);
}

void OutputPlace::commit() {
  if (options_.is_file) return;
  std::error_code error;
  std::string before;
  if (is_there(options_.path)) {
    before = name_beside(options_.path);
    fs::rename(options_.path, before, error);
    if (error) throw_refused(options_.path, "be replaced", error);
  }
  fs::rename(staging_, options_.path, error);
  if (error) {
    std::error_code ignored;
    if (!before.empty()) fs::rename(before, options_.path, ignored);
    throw_refused(options_.path, "be made", error);
  }
  staging_.clear();
  if (!before.empty()) fs::remove_all(before, error);
}

}  // namespace lockstep::apps
