#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Tracks which closures of a ClusterCoordinator wait, which run on which worker, and how the others ended.
/// Closures are numbered from 0. Each finishes once, though it may run several times: if its worker is lost,
/// it runs again elsewhere. Thread-safe.
///
/// The first closure that fails ends the round and cancels all that wait. Once the running ones have ended,
/// join() throws the error; add() or is_done() throw it earlier. It is thrown once; then a new round begins.
class ClosureQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Worker = uint64_t;

  /// With `max_staleness`, a closure begins only if no closure can see more than that many others end while
  /// it runs, however long it takes. Without it, closures begin at once.
  explicit ClosureQueue(std::optional<uint64_t> max_staleness = std::nullopt)
      : max_staleness_(max_staleness) {}

  /// Adds a closure and returns its number. Throws InvalidArgument if the queue is closed.
  uint64_t add();

  /// Gives the worker the oldest waiting closure. Blocks until one may begin. Returns none if the deadline
  /// passes first or the queue is closed.
  std::optional<uint64_t> take(Worker worker, Clock::time_point deadline);

  /// Record the result of a closure that the worker was given. Return false if it does not count because the
  /// worker was considered lost and the closure was given to another, or because the round has ended.
  bool finish(Worker worker, uint64_t closure);
  bool fail(Worker worker, uint64_t closure, const std::exception_ptr& error);

  /// Puts the worker's running closures, except the `kept` ones, back at the front of the queue. Cancels them
  /// instead if the round has failed or the queue is closed. Returns whether any was cancelled.
  bool lose(Worker worker, const std::vector<uint64_t>& kept = {});
  /// Ends the round with an error that no closure caused; cancels all waiting closures.
  void fail_waiting(const std::exception_ptr& error);

  /// Returns whether no closure waits or runs.
  bool is_done();
  /// Blocks until no closure waits or runs.
  void join();
  enum class Outcome { kFinished, kFailed, kCancelled };
  /// Blocks until the closure has ended. Throws InvalidArgument if it was never added.
  Outcome wait_for(uint64_t closure);

  /// Returns whether any closure waits or runs.
  bool has_open() const;
  /// Returns whether the worker runs any closure.
  bool is_running(Worker worker) const;
  /// Returns whether this closure waits or runs.
  bool is_open(uint64_t closure) const;
  /// Returns the first closure that waits or runs; all before it have ended.
  uint64_t first_open() const;

  /// Cancels the waiting closures. No closure can be added or taken afterwards.
  void close();

 private:
  struct Run {
    Worker worker = 0;
    uint64_t begin = 0;  // number of runs that had ended when it began
  };

  void cancel_waiting() LOCKSTEP_REQUIRES(mutex_);
  bool may_begin() const LOCKSTEP_REQUIRES(mutex_);
  bool is_running(Worker worker, uint64_t closure) const LOCKSTEP_REQUIRES(mutex_);
  void throw_error() LOCKSTEP_REQUIRES(mutex_);

  const std::optional<uint64_t> max_staleness_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  uint64_t num_added_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t num_ended_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<uint64_t, Run> running_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<uint64_t, Outcome> not_finished_ LOCKSTEP_GUARDED_BY(mutex_);  // ended without finishing
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
