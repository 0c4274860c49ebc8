#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/rank_names.h"

namespace lockstep {

/// Records, in order, the collectives that this process's ranks have called on one channel. Detects calls
/// that do not match between ranks, on the host and before anything is launched, for backends that match
/// calls by their order alone.
///
/// No call blocks unless stated otherwise. Thread-safe.
class CollectiveOrder {
 public:
  /// Tracks `size` ranks, beginning with `first_rank`.
  explicit CollectiveOrder(int size, int first_rank = 0);

  /// Sets the names of the ranks in errors. Call it while no rank is inside.
  void name_ranks(const RankNames& names) { names_ = names; }

  struct Joined {
    uint64_t sequence = 0;     ///< position in the order
    bool is_complete = false;  ///< this rank was the last to join
  };
  /// Records that `rank` calls its next collective. Throws CollectiveMismatch if another rank called
  /// something else at that position or has returned without joining it, and after abort() its error.
  Joined join(int rank, const std::string& operation);
  /// Blocks until all ranks have joined every collective up to `sequence` - `ahead`, which `rank` has joined.
  /// Throws CollectiveMismatch if a rank returns without joining it, the error of abort(), and
  /// CollectiveAborted naming the missing ranks after `timeout`.
  void wait_until_joined(int rank, uint64_t sequence, uint64_t ahead, std::chrono::milliseconds timeout);
  /// Records that `rank` has launched the collective at `sequence`, then blocks until all ranks have. Throws
  /// like wait_until_joined().
  void wait_until_launched(int rank, uint64_t sequence, std::chrono::milliseconds timeout);
  /// Records that `rank` has returned from the run. Throws CollectiveMismatch if another rank has joined a
  /// collective that `rank` has not, except after abort().
  void leave(int rank);
  /// Begins a run: undoes leave() for all ranks.
  void enter();

  /// Throws CollectiveMismatch if some ranks have joined a collective that others have not.
  void check_complete() const;
  bool is_complete() const;
  uint64_t num_joined(int rank) const;
  /// Returns the position up to which (exclusive) all ranks have joined the collectives.
  uint64_t joined_by_all() const;
  /// Returns, as text, the ranks that have not joined the collective at `sequence`, which at least one rank
  /// has joined; empty if all have.
  std::string missing(uint64_t sequence) const;

  /// Makes join() throw `error` until reset(). If called several times, the first error stays.
  void abort(std::exception_ptr error);
  /// Returns the error of abort(), or null.
  std::exception_ptr abort_error() const;
  /// Restores the state after construction.
  void reset();

 private:
  struct Call {
    std::string description;
    int first_rank = -1;
    std::vector<char> here;
    int joined = 0;
  };

  struct Wait {
    int rank = 0;
    uint64_t sequence = 0;
    std::chrono::milliseconds timeout{};
  };
  /// Blocks until each rank's count is above the sequence.
  void wait_for_ranks(const Wait& wait, const std::vector<uint64_t>& counts) LOCKSTEP_REQUIRES(mutex_);

  size_t index_of(int rank) const { return static_cast<size_t>(rank - first_rank_); }

  const int size_;
  const int first_rank_;
  RankNames names_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Call> open_ LOCKSTEP_GUARDED_BY(mutex_);  // from position first_open_ on
  uint64_t first_open_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<uint64_t> launched_ LOCKSTEP_GUARDED_BY(mutex_);  // for each rank: how many collectives
  std::vector<char> has_left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::exception_ptr abort_error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
