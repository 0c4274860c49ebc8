#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/training/checkpoints/checkpoint_manifest.h"

namespace lockstep {

class FolderLock;
class PartSink;

struct CheckpointStoreOptions {
  std::string folder;     ///< Created if it is missing.
  int64_t keep_last = 2;  ///< Checkpoints to keep, besides the best one.
  /// Id of the job, the same for its processes in all restarts; empty if there is none.
  std::string job;
  int64_t generation = 0;  ///< Number of earlier starts of the job.
};

/// Writes checkpoints to a folder, which it owns as long as it lives: no other process writes checkpoints
/// there.
///
/// Each checkpoint is a folder of its own, such as checkpoint-000000001500 after step 1500. It gets this name
/// only when it is completely on the disk, so a process that is killed at any moment leaves whole checkpoints
/// only; the next owner removes unfinished ones. The folder may be on a file system that several hosts
/// share. Not thread-safe.
///
/// Example:
///
///     CheckpointStore store({.folder = "checkpoints", .keep_last = 3});
///     store.save({.step = 1500, .version = "1.0"}, "state.pt", [&](PartSink& sink) {
///       sink.write(bytes.data(), bytes.size());
///       sink.end_part("state");
///     });
class CheckpointStore {
 public:
  /// Takes ownership of the folder. Throws InvalidArgument if the folder's name is empty or keep_last is
  /// below 1, CheckpointError if another process owns the folder, naming it, and std::system_error if the
  /// folder cannot be written.
  explicit CheckpointStore(const CheckpointStoreOptions& options);
  /// Releases the folder.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  /// Throws CheckpointError if a later start of the job has taken the folder.
  void check_owned() const;

  /// Makes a folder for a new checkpoint and returns its path. Any process that sees the folder may then fill
  /// it with write_checkpoint_file(). The next owner removes it if you neither commit nor abandon it. Throws
  /// as save() does.
  std::string begin();

  /// Turns a folder made by begin(), whose files are on the disk, into the checkpoint of the manifest's step,
  /// replacing an earlier one of that step. Blocks until the checkpoint's name is on the disk, then removes
  /// checkpoints that are no longer kept. Returns the checkpoint's folder. Throws as save() does.
  std::string commit(const std::string& begun, CheckpointManifest manifest);

  /// Removes a folder made by begin(). Ignores errors of the system.
  static void abandon(const std::string& begun);

  /// Saves a checkpoint with a single file, `file_name`, whose content `write(sink)` writes. Returns the
  /// checkpoint's folder.
  ///
  /// Throws the errors of `write`, std::system_error naming the file if the system refuses to write (for
  /// instance because the disk is full), and CheckpointError if a later start of the job has taken the
  /// folder. Earlier checkpoints are unchanged then.
  std::string save(CheckpointManifest manifest, const std::string& file_name,
                   const std::function<void(PartSink&)>& write);

  /// Renames all checkpoints after `step` to set-aside-checkpoint-..., because a run that resumes from an
  /// earlier one will write its own. Returns how many there were. Throws as save() does.
  int64_t set_aside_after(int64_t step);

  /// Removes all checkpoints, including those set aside. Throws as save() does.
  void clear();

 private:
  std::string removed_name(const std::string& name) const;
  void publish(const std::string& made, const std::string& name) const;
  void publish_by_two_steps(const std::string& made, const std::string& name) const;
  void remove(const std::string& path) const;
  void remove_superfluous() const;

  CheckpointStoreOptions options_;
  std::unique_ptr<FolderLock> lock_;
};

/// Writes a file of a checkpoint into a folder made by CheckpointStore::begin(). Blocks until it is on the
/// disk. Throws the errors of `write`, and std::system_error naming the file.
CheckpointFile write_checkpoint_file(const std::string& begun, const std::string& file_name,
                                     const std::function<void(PartSink&)>& write);

/// Returns the folders of the checkpoints in `folder`, newest first; empty if `folder` does not exist. Throws
/// CheckpointError if it cannot be read.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Returns whether `name` has the form of the folder names that CheckpointStore::begin() makes.
bool is_begun_checkpoint(const std::string& name);

/// Returns whether `folder` is a checkpoint, rather than a folder with checkpoints.
bool is_checkpoint(const std::string& folder);

}  // namespace lockstep
