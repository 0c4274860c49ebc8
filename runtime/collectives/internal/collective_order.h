#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// What this process's ranks of one channel have called, in order. Tells apart, on the host and before
/// anything is launched, the calls of ranks that do not fit together, for backends that match calls by their
/// order alone.
///
/// No call blocks. Thread-safe.
class CollectiveOrder {
 public:
  /// Ranks `first_rank` and so many after it.
  explicit CollectiveOrder(int size, int first_rank = 0);

  struct Joined {
    uint64_t sequence = 0;     ///< the place in the order
    bool is_complete = false;  ///< by this rank, as the last one
  };
  /// `rank` calls its next collective. Throws CollectiveMismatch where another rank called something else
  /// there or has returned without joining it, and after abort() its error.
  Joined join(int rank, const std::string& description);
  /// `rank` has returned from the run. Throws CollectiveMismatch where another rank has joined a collective
  /// that it has not, except after abort().
  void leave(int rank);
  /// A run begins: undoes leave() for all ranks.
  void enter();

  /// Throws CollectiveMismatch for a collective that some ranks have joined and others have not.
  void check_complete() const;
  bool is_complete() const;
  uint64_t num_joined(int rank) const;
  /// All ranks have joined the collectives before this place.
  uint64_t joined_by_all() const;
  /// The ranks that have not joined the collective at `sequence` (which someone has), as text; empty where
  /// all have.
  std::string missing(uint64_t sequence) const;

  /// Ends the order: join() throws `error` until reset(). The first error stays.
  void abort(std::exception_ptr error);
  /// Null where there was no abort().
  std::exception_ptr abort_error() const;
  /// Back to the state after construction.
  void reset();

 private:
  struct Call {
    std::string description;
    int first_rank = -1;
    std::vector<char> here;
    int joined = 0;
  };

  size_t index_of(int rank) const { return static_cast<size_t>(rank - first_rank_); }

  const int size_;
  const int first_rank_;
  mutable Mutex mutex_;
  std::deque<Call> open_ LOCKSTEP_GUARDED_BY(mutex_);  // from place first_open_ on
  uint64_t first_open_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<char> has_left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::exception_ptr abort_error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
