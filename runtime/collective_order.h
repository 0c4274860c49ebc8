#pragma once

// Internal: only sources of its layer need it.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/mutex.h"

namespace lockstep {

/// What the ranks of one channel have called, in order. Tells apart, on the host and before anything is
/// launched, the calls of ranks that do not fit together, for backends that match calls by their order alone.
///
/// No call blocks. Thread-safe.
class CollectiveOrder {
 public:
  explicit CollectiveOrder(int size);

  /// `rank` calls its next collective; returns that one's place in the order. Throws CollectiveMismatch
  /// where another rank called something else there or has returned without joining it, CollectiveAborted
  /// after abort().
  uint64_t join(int rank, const std::string& description);
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

  /// Ends the order: join() throws CollectiveAborted(`reason`) until reset(). The first reason stays.
  void abort(const std::string& reason);
  std::optional<std::string> abort_reason() const;
  /// Back to the state after construction.
  void reset();

 private:
  struct Call {
    std::string description;
    int first_rank = -1;
    std::vector<char> here;
    int joined = 0;
  };

  const int size_;
  mutable Mutex mutex_;
  std::deque<Call> open_ LOCKSTEP_GUARDED_BY(mutex_);  // from place first_open_ on
  uint64_t first_open_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<char> has_left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<std::string> abort_reason_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
