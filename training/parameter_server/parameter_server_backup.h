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
  std::string folder;  ///< that the chief and all servers see, such as one on a file system that they share
  SaveInterval every = SaveInterval::minutes(10);  ///< steps or minutes
  int64_t keep_last = 2;                           ///< checkpoints
  /// Gets a line about each checkpoint that could not be saved; none: it goes to standard error.
  std::function<void(const std::string&)> on_message{};
};

/// The chief's part in the checkpoints of parameter servers: says when they save their shards, makes one
/// checkpoint of it, and knows the step to go on with. A server that is started again goes on from the last
/// one, by itself; so does the whole job.
///
///   ParameterServerBackup backup(strategy, {.folder = folder, .every = SaveInterval::steps(500)});
///   strategy.run_steps("train", backup.first_step(), 10'000, [&](int64_t step, const auto&) {
///     backup.after_step(step);
///   });
///   backup.finish();
///
/// With a staleness of 0 a checkpoint is what all shards were after one step, and the next step waits for it.
/// Else it is made in the background, each shard's part at a moment of its own; which steps are in each is
/// part of it, so that those are not applied again. For one thread.
class ParameterServerBackup {
 public:
  /// Made once the strategy's scope has made all optimizers. Takes the folder, and saves what training begins
  /// with where nothing was saved yet. Throws InvalidArgument on a worker, without a folder, and for epochs;
  /// CheckpointError where another process owns the folder, where servers have gone on from different
  /// checkpoints, and where they have gone on from one that the chief does not see; and as finish().
  ParameterServerBackup(ParameterServerStrategy& strategy, const ParameterServerBackupOptions& options);
  /// Waits for a checkpoint that is being written.
  ~ParameterServerBackup() = default;
  ParameterServerBackup(const ParameterServerBackup&) = delete;
  ParameterServerBackup& operator=(const ParameterServerBackup&) = delete;

  /// Of the steps that are still to be made; 0 for a new training.
  int64_t first_step() const { return first_step_; }

  /// Step `step` and all before it are made: saves where that is due, unless the last checkpoint is still
  /// being written. One that cannot be written, because a disk is full for one, is a message: the training
  /// goes on, and those from before stay. Throws what else went wrong with it: as
  /// ParameterServerStrategy::save_on_servers(), and CheckpointStore::commit().
  void after_step(int64_t step);
  /// Saves what was made since the last checkpoint. Blocks until it is on the disk. Throws as after_step(),
  /// and std::system_error where it cannot be written.
  void finish();

  /// Checkpoints made, that at the beginning included.
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
  int64_t steps_ = 0;        // made
  int64_t begun_steps_ = 0;  // in the last checkpoint that was begun
  int64_t saved_steps_ = 0;  // in the last one that was saved
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  int64_t num_saved_ = 0;
  std::future<void> saving_;
};

}  // namespace lockstep
