#include "lockstep/training/reporting/records/run_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_refused(const std::string& action, const std::string& path, int error) {
  throw RunDirectoryError("[RunDirectory] expected a folder that can be written, but cannot " + action +
                          " '" + path + "': " + std::generic_category().message(error));
}

[[noreturn]] void throw_in_use(const std::string& folder, const std::string& owner) {
  throw RunDirectoryError("[RunDirectory] expected a folder that no process uses, but '" + folder +
                          "' is in use by " + owner);
}

/// Throws if the folder holds anything but a lock file.
void check_empty(const RunPaths& paths) {
  std::error_code error;
  std::string first;
  int64_t others = -1;
  for (fs::directory_iterator entry(paths.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->path() == fs::path(paths.lock())) continue;
    if (first.empty() || name < first) first = name;
    ++others;
  }
  if (error) throw_refused("list", paths.folder, error.value());
  if (first.empty()) return;
  throw RunDirectoryError("[RunDirectory] expected a new or empty folder, but '" + paths.folder + "' holds " +
                          first + (others > 0 ? " and " + std::to_string(others) + " more" : "") +
                          "; nothing in it was changed");
}

}  // namespace

std::optional<std::string> run_directory_owner(const RunPaths& paths) {
  const std::string owner = folder_owner(paths.lock());
  return owner.empty() ? std::nullopt : std::optional(owner);
}

RunDirectory::RunDirectory(const std::string& folder) : paths_{folder} {
  if (folder.empty()) throw RunDirectoryError("[RunDirectory] expected the path of a folder, but got ''");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_refused("make", folder, error.value());
  // Checked first: naming the owner says more than that the folder is not empty.
  if (const auto owner = run_directory_owner(paths_)) throw_in_use(folder, *owner);
  check_empty(paths_);
  try {
    lock_.emplace(paths_.lock(), FolderOwner::here());
  } catch (const FolderInUse& owner) {
    throw_in_use(folder, owner.what());
  } catch (const std::system_error& refused) {
    throw RunDirectoryError(std::string("[RunDirectory] expected a folder that can be written, but ") +
                            refused.what());
  }
  check_empty(paths_);
  for (const auto& part : {paths_.tensorboard(), paths_.checkpoints()}) {
    if (::mkdir(part.c_str(), 0777) != 0) throw_refused("make", part, errno);
  }
}

}  // namespace lockstep
