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
  std::string folder;     ///< made where it is missing
  int64_t keep_last = 2;  ///< besides the best one
  /// What the processes of a job have in common over its restarts; empty: nothing.
  std::string job;
  int64_t generation = 0;  ///< how often the job had been started before
};

/// Checkpoints in a folder, of which this process alone writes some as long as the object lives. Each is a
/// folder of its own, checkpoint-000000001500 after step 1500, which gets its name only when all of it is on
/// the disk: a process that is killed at any moment leaves whole ones only, and what else it left the next
/// owner removes.
///
/// The folder may lie on a file system that several hosts share. Used by one thread at a time.
class CheckpointStore {
 public:
  /// Takes the folder. Throws InvalidArgument without a folder and for keep_last below 1, CheckpointError
  /// where another process owns it, naming that one, and std::system_error where the folder cannot be
  /// written.
  explicit CheckpointStore(const CheckpointStoreOptions& options);
  /// Gives it up.
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  /// Throws CheckpointError where a later generation of the job has taken the folder.
  void check_owned() const;

  /// Makes a folder for a new checkpoint, and returns it: write_checkpoint_file() fills it, in any process
  /// that sees it. What is neither committed nor abandoned the next owner removes. Throws as save().
  std::string begin();

  /// Makes what was begun the checkpoint of its step, in the place of one of the same step, once its files
  /// are on the disk. Blocks until its name is there too, then removes those that are not kept any more.
  /// Returns its folder. Throws as save().
  std::string commit(const std::string& begun, CheckpointManifest manifest);

  /// Removes what was begun, as far as the system lets it.
  static void abandon(const std::string& begun);

  /// All of this for a checkpoint of one file, `file_name`, whose content `write(sink)` gives.
  ///
  /// Throws what `write` throws, std::system_error naming the file where the disk is full or refuses, and
  /// CheckpointError where a later generation of the job has taken the folder; the checkpoints from before
  /// are as they were then.
  std::string save(CheckpointManifest manifest, const std::string& file_name,
                   const std::function<void(PartSink&)>& write);

  /// Gives those behind `step` another name, set-aside-checkpoint-...: a run that goes on from an earlier
  /// one will make its own. Returns how many there were. Throws as save().
  int64_t set_aside_after(int64_t step);

  /// Removes all checkpoints, those that were set aside too. Throws as save().
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

/// Writes a file of a checkpoint into the folder that CheckpointStore::begin() has made, and waits until it
/// is on the disk. Throws what `write` throws, and std::system_error naming the file.
CheckpointFile write_checkpoint_file(const std::string& begun, const std::string& file_name,
                                     const std::function<void(PartSink&)>& write);

/// The folders of the checkpoints in `folder`, the newest first; none where it does not exist. Throws
/// CheckpointError where it cannot be read.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Whether CheckpointStore::begin() gives folders such names.
bool is_begun_checkpoint(const std::string& name);

/// Whether `folder` is a checkpoint's, rather than one that holds some.
bool is_checkpoint(const std::string& folder);

}  // namespace lockstep
