#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/save_interval.h"
#include "lockstep/training/checkpoints/checkpoint_state.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {

class CheckpointStore;
class ShardedCheckpoint;
struct CheckpointManifest;

struct BackupOptions {
  /// Folder of the checkpoints. Only worker 0 reads and writes there, unless `sharded` is set.
  std::string folder;
  SaveInterval save_every{};
  int64_t keep_last = 2;  ///< Checkpoints to keep, besides the newest one that was saved as the best.
  /// If true, finish() removes the checkpoints.
  bool delete_on_success = false;
  /// If true, checkpoints are copied to host memory and written by a background thread while training
  /// continues. If parameters or optimizers' states are sharded, worker 0 puts them together one after
  /// another and writes each at once, so that it never holds all of them: training waits for the disk then,
  /// unless `sharded` is set.
  bool asynchronous = true;
  /// If true, all workers write each checkpoint together, each one a part of the parameters and optimizer
  /// states in its own file. They must share the folder, for instance on a network file system. Such a
  /// checkpoint can be read with any number of workers, sharded or not.
  bool sharded = false;
  /// Checkpoint to resume from: "auto" (the newest whole one in the folder, if any), "never", or the path of
  /// a checkpoint or of a folder with some. If the launcher has restarted the job and the folder has a
  /// checkpoint, "auto" applies.
  std::string resume = "auto";
  /// Text stored in every checkpoint, for the information of its readers.
  std::string configuration{};
  /// Called by restore() with the `configuration` of the checkpoint that training resumes from, so that you
  /// can say what has changed since. All workers call it.
  std::function<void(const std::string& configuration)> on_resume{};
  /// Receives one line for each event that the user should know: the checkpoint that training resumes from, a
  /// damaged checkpoint, or one that could not be saved. Called by the thread that uses the backup. If null,
  /// lines go to stderr.
  std::function<void(const std::string&)> on_message{};
};

/// Lets training survive the end of its process, with three calls: restore() before the first step,
/// step_done() after each step, and finish() with the progress at the end.
///
/// A restored state equals, bit for bit, the state of uninterrupted training after the same step; resumed
/// with the same number of replicas, training ends with the same result.
///
/// Each checkpoint is a folder with a checksum of every tensor; see CheckpointStore. Not thread-safe: call it
/// from one thread, between runs of the strategy. With several workers, all must make the same calls. Only
/// worker 0 reads and writes, unless checkpoints are sharded: then all workers write, and a checkpoint
/// written in the background is committed by the next call after all workers have finished.
///
/// Example:
///
///     Backup backup(strategy, {.folder = "backup", .save_every = SaveInterval::steps(500)});
///     backup.state().add_model(model);
///     backup.state().add_optimizer("optimizer", optimizer);
///     TrainingProgress progress;
///     if (auto restored = backup.restore()) progress = restored->progress;
///     batches.restore({progress.dataset_epoch, progress.position});
///     for (; progress.epoch < epochs; ++progress.epoch) {
///       for (const auto& batch : batches) {
///         strategy.run(train_step, model, optimizer, batch);
///         ++progress.step;
///         progress.dataset_epoch = batches.position().epoch;
///         progress.position = batches.position().step;
///         backup.step_done(progress);
///       }
///       ++progress.dataset_epoch;  // the next epoch begins with its first batch
///       progress.position = 0;
///     }
///     backup.finish(progress);
class Backup {
 public:
  /// Takes ownership of the folder. A collective.
  ///
  /// Throws InvalidArgument if an option is out of range or only some workers set `sharded`. Throws
  /// CheckpointError if another process owns the folder, naming it; if `resume` is "never" but there are
  /// checkpoints; and if the workers of a sharded backup do not share the folder. Throws std::system_error if
  /// the folder cannot be written.
  Backup(Strategy& strategy, const BackupOptions& options);
  /// Waits for a checkpoint that is being written, and reports if that fails. Gives up a sharded checkpoint
  /// that is not committed yet; finish() would complete it.
  ~Backup();
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;

  /// Returns the state to save. Fill it before the calls below.
  TrainingState& state() { return training_; }

  struct Restored {
    TrainingProgress progress;
    std::string path;  ///< Folder of the checkpoint.
    StateValue more;   ///< Value that save() was given as `more`; None if there was none.
  };
  /// Restores every replica from the newest whole checkpoint, or from the one that `resume` names. Returns
  /// nothing if there is no checkpoint to resume from. Skips damaged checkpoints, with a message that names
  /// the file and the tensor. Sets aside all checkpoints in the folder that are later than the restored one.
  /// A collective.
  ///
  /// Throws CheckpointError on all workers if all checkpoints are damaged, if the one that `resume` names is,
  /// and if one is of another model or optimizer.
  std::optional<Restored> restore();

  /// Advances a sharded checkpoint that is being written, as step_done() does at every step: worker 0 commits
  /// it once all workers have written their parts, or reports that it could not be saved. Call it during long
  /// work without steps, such as an evaluation. Does not wait for the disk. A collective while a checkpoint
  /// is being written.
  void commit_written();
  /// Returns whether step_done() would save. A collective if `save_every` is in minutes.
  bool is_due(const TrainingProgress& progress);
  /// Saves if a checkpoint is due, in the background if `asynchronous` is set. If the checkpoint cannot be
  /// written, for instance because the disk is full, reports that and keeps the earlier checkpoints; training
  /// continues. Throws CheckpointError if a later start of this job has taken the folder. A collective.
  void step_done(const TrainingProgress& progress);
  /// Saves now, even if no checkpoint is due; otherwise like step_done().
  void save(const TrainingProgress& progress, StateValue more = {}, bool is_best = false);
  /// Saves now and blocks until the checkpoint is on the disk. Throws std::system_error if it cannot be
  /// written.
  void save_and_wait(const TrainingProgress& progress, StateValue more = {}, bool is_best = false);

  /// Ends a training that is done: saves its last state, so that a later start of the same program repeats
  /// no step, and then does what finish() does. Saves nothing if the training has not moved since restore(),
  /// or if `delete_on_success` is set. Blocks, and throws, as save_and_wait().
  void finish(const TrainingProgress& progress);
  /// Waits for a checkpoint that is being written, and removes all checkpoints if `delete_on_success` is set.
  /// Saves nothing. A collective if checkpoints are sharded.
  void finish();

 private:
  struct Loaded {
    std::string path;
    std::vector<CheckpointContent> files;
  };

  void take_folder();
  void log(const std::string& line) const;
  Loaded find_checkpoint();
  TrainingProgress restore_state(const StateValue& state, const std::string& source);
  Loaded read_from_chief();
  void note(const TrainingProgress& progress);
  TrainingState::Collected take(const TrainingProgress& progress, StateValue more);
  CheckpointManifest manifest_of(const TrainingProgress& progress, bool is_best) const;
  void write(const CheckpointManifest& manifest, const StateValue::Dict& state);
  void write_divided(const CheckpointManifest& manifest, const TrainingState::Collected& collected);
  void save_shard(const CheckpointManifest& manifest, const TrainingState::Collected& collected,
                  bool in_background);
  void commit_shards(bool waits);
  void await_writing();
  template <typename Act>
  void attempt(const Act& act, const char* consequence = "");

  Strategy& strategy_;
  BackupOptions options_;
  TrainingState training_;
  std::unique_ptr<CheckpointStore> store_;  // worker 0's
  int64_t saved_step_ = 0;
  int64_t saved_epoch_ = 0;
  bool is_restored_ = false;  // whether the newest checkpoint is the one that restore() read
  std::chrono::steady_clock::time_point saved_at_;
  std::future<void> writing_;
  bool is_chief_ = false;
  bool is_sharded_ = false;
  std::unique_ptr<ShardedCheckpoint> shards_;  // of the checkpoint that is being written
};

}  // namespace lockstep
