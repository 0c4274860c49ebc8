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
  /// Where the checkpoints lie: worker 0 alone reads and writes there, but for what `sharded` says.
  std::string folder;
  SaveInterval save_every{};
  int64_t keep_last = 2;  ///< checkpoints, besides the newest that save() was told is the best
  /// Removes the checkpoints once the training is at its end.
  bool delete_on_success = false;
  /// Writes in a thread of its own, from a copy in the host's memory, while training goes on.
  bool asynchronous = true;
  /// All workers write a checkpoint together, each a part of its parameters and optimizers' states in a file
  /// of its own. The folder has to be one that they share, such as on a network file system. It can be read
  /// with any other number of workers, and by jobs that do not shard.
  bool sharded = false;
  /// auto: from the newest whole checkpoint in the folder, where there is one; never; or the path of a
  /// checkpoint, or of a folder with some. A job that its launcher has started again goes by auto where its
  /// folder has a checkpoint.
  std::string resume = "auto";
  /// Kept in every checkpoint, for whoever looks at it.
  std::string configuration{};
  /// Gets a line for each thing that a person should know: what the training goes on from, what was found
  /// damaged, what could not be saved. Called by the thread that uses the backup. Null: they go to stderr.
  std::function<void(const std::string&)> on_message{};
};

/// Keeps a training alive over the end of its process, in two calls: restore() before the first step, and
/// step_done() after each.
///
///     Backup backup(strategy, {.folder = "backup", .save_every = SaveInterval::steps(500)});
///     backup.state().add_model(model);
///     backup.state().add_optimizer("optimizer", optimizer);
///     TrainingProgress progress;
///     if (auto restored = backup.restore()) progress = restored->progress;
///     batches.restore({progress.dataset_epoch, progress.position});
///     for (...) {
///       ... one step ...
///       ++progress.step;
///       backup.step_done(progress);
///     }
///     backup.finish();
///
/// What was saved after a step is what an uninterrupted training had there, bit by bit: goes on with as many
/// replicas, it comes to the same end.
///
/// A checkpoint is a folder of its own, with a checksum of every tensor, see CheckpointStore. Between runs of
/// the strategy, by one thread; with several workers all call it together, and worker 0 alone reads and
/// writes, unless they share the work: then all write, and a checkpoint that is written in the background
/// becomes one at the next call after all are done.
class Backup {
 public:
  /// Takes the folder; a collective. Throws InvalidArgument for options out of range, and where only some
  /// workers have `sharded`, CheckpointError where another process owns the folder, naming it, where `resume`
  /// is never and there are checkpoints already, or where the workers of a sharded one do not share it, and
  /// std::system_error where it cannot be written.
  Backup(Strategy& strategy, const BackupOptions& options);
  /// Waits for what is being written; says where it failed. A sharded checkpoint that is still under way is
  /// given up: finish() is not.
  ~Backup();
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;

  /// What is saved: to be filled before the calls below.
  TrainingState& state() { return training_; }

  struct Restored {
    TrainingProgress progress;
    std::string path;  ///< the checkpoint's folder
    StateValue more;   ///< what save() was given besides; None: nothing
  };
  /// Restores every replica from the newest checkpoint that is whole, or the one that was asked for; nothing
  /// where there is none to go on from. Damaged ones are passed over, with a message that names file and
  /// tensor. Later ones in the folder are set aside. A collective.
  ///
  /// Throws CheckpointError on all workers where there are checkpoints and none is whole, where the one that
  /// was asked for is not, and where one is of another model or optimizer.
  std::optional<Restored> restore();

  /// What step_done() does at every step: goes on with a sharded checkpoint that is under way, which worker 0
  /// commits once all have written their parts, or says what could not be saved. To be called in between
  /// where other work takes long, such as an evaluation. A collective while one is under way; does not wait
  /// for the disk.
  void commit_written();
  /// Whether step_done() would save. A collective where it goes by minutes.
  bool is_due(const TrainingProgress& progress);
  /// Saves where it is due, in the background where that was asked for. A checkpoint that cannot be written,
  /// because the disk is full for one, is a message: the training goes on, and those from before stay. Throws
  /// CheckpointError where a later start of this job has taken the folder. A collective.
  void step_done(const TrainingProgress& progress);
  /// Saves now, due or not, in the background where that was asked for. As step_done().
  void save(const TrainingProgress& progress, StateValue more = {}, bool is_best = false);
  /// Saves now, and waits until it is on the disk. Throws std::system_error where it cannot be.
  void save_and_wait(const TrainingProgress& progress, StateValue more = {}, bool is_best = false);

  /// The training is at its end, a collective where checkpoints are `sharded`: waits for what is being
  /// written, and removes the checkpoints if that was asked for.
  void finish();

 private:
  struct Loaded {
    std::string path;
    std::vector<CheckpointContent> files;
  };

  void take_folder();
  void say(const std::string& line) const;
  Loaded find_checkpoint();
  Loaded read_from_chief();
  void note(const TrainingProgress& progress);
  StateValue::Dict take(const TrainingProgress& progress, StateValue more);
  CheckpointManifest manifest_of(const TrainingProgress& progress, bool is_best) const;
  void write(const CheckpointManifest& manifest, const StateValue::Dict& state);
  void save_shard(const CheckpointManifest& manifest, const StateValue::Dict& shard, bool in_background);
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
  std::chrono::steady_clock::time_point saved_at_;
  std::future<void> writing_;
  bool is_chief_ = false;
  bool is_sharded_ = false;
  std::unique_ptr<ShardedCheckpoint> shards_;  // while they are under way
};

}  // namespace lockstep
