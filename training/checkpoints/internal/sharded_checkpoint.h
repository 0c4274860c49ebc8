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

/// The shard that this worker writes of a checkpoint that all write together.
StateShard shard_of_worker(const Strategy& strategy);

/// Throws InvalidArgument on all workers, naming two, unless all share checkpoints or none does. A
/// collective.
void check_all_share(Strategy& strategy, bool shares);

/// Worker 0, which `is_chief`, acts, and all learn what it returned. Where it throws, so do the others:
/// std::system_error and CheckpointError as it does, and ClusterError for all else, naming worker 0. A
/// collective.
std::string act_on_chief(Strategy& strategy, bool is_chief, const std::function<std::string()>& act);

/// Throws CheckpointError on all workers where what worker 0 makes in its `folder` is not in that of another
/// one, and std::system_error where one cannot write there. `store` is worker 0's, null elsewhere. A
/// collective.
void check_shared(Strategy& strategy, const std::string& folder, CheckpointStore* store);

/// A checkpoint that all workers write together: each a file with its own shard, of which worker 0 makes a
/// checkpoint once all of them are on the disk. All workers make the same calls, between runs of the
/// strategy; the constructor and commit() are collectives.
class ShardedCheckpoint {
 public:
  /// Begins it: worker 0 makes its folder, in the store's. `folder` is the store's as this worker calls it;
  /// `store` is worker 0's, and null elsewhere. Throws on all workers std::system_error where the folder
  /// cannot be made, and CheckpointError where a later start of the job has taken the store's.
  ShardedCheckpoint(Strategy& strategy, const std::string& folder, CheckpointStore* store,
                    CheckpointManifest manifest);
  /// Gives it up: no checkpoint comes of it, unless worker 0 is committing it already. Waits for the thread
  /// that writes, which stops after some megabytes, and for one that commits.
  ~ShardedCheckpoint();
  ShardedCheckpoint(const ShardedCheckpoint&) = delete;
  ShardedCheckpoint& operator=(const ShardedCheckpoint&) = delete;

  /// Writes this worker's shard; in the background from a copy, where that is asked for. What fails is told
  /// by commit().
  void write(const StateValue::Dict& shard, bool in_background);

  /// Goes on with it: once all workers have written their shards worker 0 commits, in the background, and
  /// once it has, all learn of it. Returns whether that is so, for which it waits if `waits`.
  ///
  /// Where workers could not do their part, the first of them throws what kept it from it, and the others
  /// std::system_error or CheckpointError as it does, and ClusterError for all else, naming it.
  bool commit(bool waits);

 private:
  enum class Phase { kWriting, kCommitting };

  bool finish_own(bool waits);
  void begin_commit(const std::vector<std::string>& shards);

  Strategy& strategy_;
  CheckpointStore* store_;
  CheckpointManifest manifest_;
  StateShard shard_;
  std::string begun_;  // its folder while it is made, as this worker calls it
  Phase phase_ = Phase::kWriting;
  CheckpointFile file_;
  std::exception_ptr failure_;  // of what this worker does in this phase
  std::atomic<bool> is_given_up_ = false;
  std::future<void> work_;  // of this phase, in the background
};

}  // namespace lockstep
