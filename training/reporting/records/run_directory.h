#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/base/files/folder_lock.h"

namespace lockstep {

/// A run directory that cannot be used: it cannot be written, another process uses it, or it holds another
/// run. The message names it. Lockstep's programs end with exit code 4 on it.
class RunDirectoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the parts of a run lie.
struct RunPaths {
  std::string folder;

  std::string config() const { return folder + "/config.json"; }
  std::string metrics_csv() const { return folder + "/metrics.csv"; }
  std::string metrics_jsonl() const { return folder + "/metrics.jsonl"; }
  std::string tensorboard() const { return folder + "/tb"; }  ///< a folder: for EventFileWriter
  std::string checkpoints() const { return folder + "/checkpoints"; }
  std::string report() const { return folder + "/report.html"; }
  std::string lock() const { return folder + "/.lock"; }  ///< there as long as a process owns the folder
};

/// A folder for the record of one run, which this process owns as long as the object lives. Workers of one
/// job share a run, and one of them, rank 0, makes its directory.
class RunDirectory {
 public:
  /// Makes `folder`, those above it, and tb/ and checkpoints/ in it. A folder that is there must be empty:
  /// nothing is overwritten. Throws RunDirectoryError where it is not, where it cannot be written, and where
  /// another process owns it, naming that one's id; the folder is then as before.
  explicit RunDirectory(const std::string& folder);
  const RunPaths& paths() const { return paths_; }

 private:
  RunPaths paths_;
  std::optional<FolderLock> lock_;
};

/// Who owns a run directory now, such as "process 4711 on host-a"; nothing where nobody does, also where its
/// owner was killed. Changes nothing.
std::optional<std::string> run_directory_owner(const RunPaths& paths);

}  // namespace lockstep
