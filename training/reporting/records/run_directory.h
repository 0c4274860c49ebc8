#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/base/files/folder_lock.h"

namespace lockstep {

/// Thrown if a run directory cannot be used: it is not writable, another process uses it, or it holds another
/// run. The message names the directory. Lockstep's programs exit with code 4 on it.
///
/// Example:
///
///     try {
///       RunDirectory directory("runs/first");
///     } catch (const RunDirectoryError& error) {
///       std::cerr << error.what() << '\n';
///     }
class RunDirectoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Paths of the files and folders of a run.
struct RunPaths {
  std::string folder;

  std::string config() const { return folder + "/config.json"; }
  std::string metrics_csv() const { return folder + "/metrics.csv"; }
  std::string metrics_jsonl() const { return folder + "/metrics.jsonl"; }
  std::string tensorboard() const { return folder + "/tb"; }  ///< folder for EventFileWriter
  std::string checkpoints() const { return folder + "/checkpoints"; }
  std::string report() const { return folder + "/report.html"; }
  std::string lock() const { return folder + "/.lock"; }  ///< exists while a process owns the folder
};

/// A folder for the record of one run. This process owns it while the object exists. The workers of a job
/// share a run; only rank 0 creates its directory.
///
/// Example:
///
///     const RunDirectory directory("runs/first");
///     CsvLog log(directory.paths().metrics_csv());
class RunDirectory {
 public:
  /// Creates `folder`, its parents, and tb/ and checkpoints/ in it. An existing folder must be empty; nothing
  /// is overwritten. Throws RunDirectoryError if it is not empty, if it is not writable, or if another
  /// process owns it, naming that process; the folder is then unchanged.
  explicit RunDirectory(const std::string& folder);
  const RunPaths& paths() const { return paths_; }

 private:
  RunPaths paths_;
  std::optional<FolderLock> lock_;
};

/// Returns the current owner of a run directory, such as "process 4711 on host-a", or nothing if there is
/// none or it was killed. Changes nothing.
std::optional<std::string> run_directory_owner(const RunPaths& paths);

}  // namespace lockstep
