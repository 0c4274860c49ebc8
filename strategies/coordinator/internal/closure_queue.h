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

/// Which closures of a ClusterCoordinator wait for a worker, which run where, and what became of the others;
/// by their numbers, from 0 on. Each is finished once, though it may run several times: that of a worker who
/// is lost runs again elsewhere. Thread-safe.
///
/// The first closure that fails ends the round: those that wait are cancelled, and once those that run have
/// ended the error is thrown out of join(), or before that out of add() or is_done(), once. Then a new round
/// begins.
class ClosureQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Worker = uint64_t;

  /// With `max_staleness`, a closure begins only when none can see more others end while it runs than that,
  /// however long it takes. Without, at once.
  explicit ClosureQueue(std::optional<uint64_t> max_staleness = std::nullopt)
      : max_staleness_(max_staleness) {}

  /// The number of a new closure. Throws InvalidArgument once the queue is closed.
  uint64_t add();

  /// The closure that the worker runs from now on, the oldest of those that wait. Blocks until there is one
  /// that may begin; none where the deadline passes before, or the queue is closed.
  std::optional<uint64_t> take(Worker worker, Clock::time_point deadline);

  /// What became of a closure that the worker was given. False where it does not count, since the worker was
  /// taken for lost and another one was given it, or the round has ended.
  bool finish(Worker worker, uint64_t closure);
  bool fail(Worker worker, uint64_t closure, const std::exception_ptr& error);

  /// What the worker runs, but for what it has `kept`, waits again, before all others; or is cancelled where
  /// the round has failed or the queue is closed. Returns whether anything was cancelled.
  bool lose(Worker worker, const std::vector<uint64_t>& kept = {});
  /// Ends the round with an error that is no closure's: those that wait are cancelled.
  void fail_waiting(const std::exception_ptr& error);

  /// Whether nothing waits or runs.
  bool is_done();
  /// Blocks until that is so.
  void join();
  enum class Outcome { kFinished, kFailed, kCancelled };
  /// Blocks until the closure has come to its end. Throws InvalidArgument for one that was never added.
  Outcome wait_for(uint64_t closure);

  /// Whether any closure waits or runs.
  bool has_open() const;
  /// Whether the worker runs any.
  bool is_running(Worker worker) const;
  /// Whether this one does.
  bool is_open(uint64_t closure) const;
  /// All closures before this one have come to their end.
  uint64_t first_open() const;

  /// Cancels those that wait; no worker gets a closure any more, and none can be added.
  void close();

 private:
  struct Run {
    Worker worker = 0;
    uint64_t begin = 0;  // how many runs had ended when it began
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
  std::map<uint64_t, Outcome> not_finished_ LOCKSTEP_GUARDED_BY(mutex_);  // that have come to their end
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
