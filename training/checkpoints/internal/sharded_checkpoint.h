#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {

class CheckpointStore;

/// Returns the shard that this worker writes of a joint checkpoint.
StateShard shard_of_worker(const Strategy& strategy);

/// Throws InvalidArgument on all workers, naming two, unless all share checkpoints or none does. A
/// collective.
void check_all_share(Strategy& strategy, bool shares);

/// Calls `act` on worker 0, which passes `is_chief`, and returns its result on all workers. If it throws, all
/// workers throw: std::system_error and CheckpointError as they are, anything else on the others as
/// ClusterError naming worker 0. A collective.
std::string act_on_chief(Strategy& strategy, bool is_chief, const std::function<std::string()>& act);

/// Throws CheckpointError on all workers if a folder that worker 0 creates in its `folder` is not visible in
/// that of another worker, and std::system_error if a worker cannot write there. `store` is worker 0's, null
/// elsewhere. A collective.
void check_shared(Strategy& strategy, const std::string& folder, CheckpointStore* store);

/// A checkpoint that all workers write together. Each writes a file with its own shard; worker 0 commits the
/// checkpoint once all files are on disk. All workers must make the same calls, between runs of the strategy;
/// the constructor and commit() are collectives.
class ShardedCheckpoint {
 public:
  /// Begins the checkpoint: worker 0 creates its folder in the store's. `folder` is this worker's path of the
  /// store; `store` is worker 0's, null elsewhere. Throws on all workers std::system_error if the folder
  /// cannot be created, and CheckpointError if a later start of the job has taken over the store.
  ShardedCheckpoint(Strategy& strategy, const std::string& folder, CheckpointStore* store,
                    CheckpointManifest manifest);
  /// Abandons the checkpoint unless worker 0 is already committing it. Waits for the writing thread, which
  /// stops within a few megabytes, and for a committing one.
  ~ShardedCheckpoint();
  ShardedCheckpoint(const ShardedCheckpoint&) = delete;
  ShardedCheckpoint& operator=(const ShardedCheckpoint&) = delete;

  /// Writes this worker's shard, with `in_background` by another thread: its tensors must not change until
  /// then. Reports errors in commit().
  void write(StateValue::Dict shard, bool in_background);

  /// Continues the checkpoint: once all workers have written their shards, worker 0 commits in the
  /// background; after that, all workers learn of it. Returns whether the checkpoint is committed; if
  /// `waits`, blocks until it is.
  ///
  /// If workers failed, the first of them throws its error. The others throw it too if it is a
  /// std::system_error or CheckpointError, otherwise ClusterError; all name that worker.
  bool commit(bool waits);

 private:
  enum class Phase { kWriting, kCommitting };

  bool finish_own(bool waits);
  void begin_commit(const std::vector<std::string>& shards);

  Strategy& strategy_;
  CheckpointStore* store_;
  CheckpointManifest manifest_;
  StateShard shard_;
  std::string begun_;  // this worker's path of the unfinished checkpoint
  Phase phase_ = Phase::kWriting;
  CheckpointFile file_;
  std::exception_ptr failure_;  // this worker's error in the current phase
  std::atomic<bool> is_given_up_ = false;
  std::future<void> work_;  // background work of the current phase
};

}  // namespace lockstep
