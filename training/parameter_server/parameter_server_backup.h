#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>

#include "lockstep/runtime/base/save_interval.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"

namespace lockstep {

struct ParameterServerBackupOptions {
  std::string folder;  ///< Folder that the chief and all servers see, for example on a shared file system.
  SaveInterval every = SaveInterval::minutes(10);  ///< In steps or minutes.
  int64_t keep_last = 2;                           ///< Checkpoints to keep.
  /// Receives one line for each checkpoint that could not be saved. If empty, lines go to standard error.
  std::function<void(const std::string&)> on_message{};
};

/// Saves checkpoints of parameter servers, from the chief: it tells the servers when to save their shards,
/// joins these to one checkpoint, and knows the step to resume at. A restarted server resumes from the last
/// checkpoint by itself, and so does a restarted job.
///
/// With a staleness of 0, a checkpoint holds the state of all shards after the same step, and the next step
/// waits for it. Otherwise it is made in the background, and each shard is saved at a moment of its own; the
/// checkpoint records which steps each one contains, so that these are not applied again. Not thread-safe.
///
/// Example:
///
///     ParameterServerBackup backup(strategy, {.folder = folder, .every = SaveInterval::steps(500)});
///     strategy.run_steps("train", backup.first_step(), 10'000, [&](int64_t step, const auto&) {
///       backup.after_step(step);
///     });
///     backup.finish();
class ParameterServerBackup {
 public:
  /// Takes ownership of the folder, and saves the initial state if there is no checkpoint yet. Make it after
  /// the strategy's scope() has made all optimizers.
  ///
  /// Throws InvalidArgument on a worker, without a folder, and if `every` is in epochs. Throws
  /// CheckpointError if another process owns the folder, if servers have resumed from different checkpoints,
  /// or if they have resumed from one that the chief does not see. Also throws the errors of finish().
  ParameterServerBackup(ParameterServerStrategy& strategy, const ParameterServerBackupOptions& options);
  /// Waits for a checkpoint that is being written.
  ~ParameterServerBackup() = default;
  ParameterServerBackup(const ParameterServerBackup&) = delete;
  ParameterServerBackup& operator=(const ParameterServerBackup&) = delete;

  /// Returns the first step that is still to be made; 0 for a new training.
  int64_t first_step() const { return first_step_; }

  /// Call this when step `step` and all before it are made. Saves if a checkpoint is due, unless the last one
  /// is still being written. If a checkpoint cannot be written, for instance because the disk is full,
  /// reports that and keeps the earlier ones; training continues. Throws the other errors of
  /// ParameterServerStrategy::save_on_servers() and CheckpointStore::commit().
  void after_step(int64_t step);
  /// Saves the steps made since the last checkpoint. Blocks until they are on the disk. Throws as
  /// after_step() does, and std::system_error if the checkpoint cannot be written.
  void finish();

  /// Returns the number of checkpoints saved, including the initial one.
  int64_t num_saved() const { return num_saved_; }

 private:
  bool is_due(int64_t steps) const;
  void begin_save(int64_t steps);
  void end_save();
  void end_save_or_say();

  ParameterServerStrategy& strategy_;
  const ParameterServerBackupOptions options_;
  CheckpointStore store_;
  int64_t first_step_ = 0;
  int64_t steps_ = 0;        // made so far
  int64_t begun_steps_ = 0;  // in the last checkpoint that was begun
  int64_t saved_steps_ = 0;  // in the last one that was saved
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  int64_t num_saved_ = 0;
  std::future<void> saving_;
};

}  // namespace lockstep
