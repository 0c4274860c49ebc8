#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/workers/heartbeat.h"

namespace lockstep {

/// What has gone wrong among the workers of a job, as one of them knows it: what the heartbeat has found,
/// what the others have reported to the store, and what it reports itself. The first failure is the one that
/// counts. Thread-safe.
class WorkerFailures {
 public:
  /// The key that failures are appended to, a line each.
  static constexpr const char* kKey = "failures";
  /// Counts the workers but worker 0 that have read it, or need not since they have written there.
  static constexpr const char* kReadKey = "failures/read";

  /// `store` is a client that nobody else waits with. `names` are the workers'.
  WorkerFailures(int rank, std::vector<std::string> names, c10::intrusive_ptr<c10d::Store> store)
      : rank_(rank), names_(std::move(names)), store_(std::move(store)) {}

  /// Returns the PeerLost that this is. Does not block.
  std::exception_ptr lose(const LostPeer& peer);
  /// Tells the others of a failure of this worker's, once; a PeerLost is none.
  void report(const std::exception_ptr& error);
  /// Says what a backend's error means: the failure of this worker that was reported, else PeerLost with what
  /// is known of the cause, for which it waits a second at most; a CollectiveMismatch and a CollectiveAborted
  /// as they are. `op` begins the message.
  std::exception_ptr explain(const std::string& op, const std::exception_ptr& error);
  /// The failure of this worker that was reported, else PeerLost with what is known of another's, for which
  /// it waits a second at most; null: nothing.
  std::exception_ptr find_cause() { return search_cause().cause; }

  /// What lose() returned; null before.
  std::exception_ptr lost() const;
  bool has_failed() const;
  /// Whether it was this worker that has failed.
  bool is_origin() const;
  const std::string& name_of(int worker) const { return names_.at(static_cast<size_t>(worker)); }

 private:
  struct Search;
  struct Found {
    std::exception_ptr cause;
    bool is_store_gone = false;
  };
  Found search_cause();

  const int rank_;
  const std::vector<std::string> names_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<std::atomic<bool>> is_counted_ = std::make_shared<std::atomic<bool>>(false);
  mutable Mutex mutex_;
  std::exception_ptr lost_ LOCKSTEP_GUARDED_BY(mutex_);
  bool has_failed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr own_ LOCKSTEP_GUARDED_BY(mutex_);  // that was reported
};

}  // namespace lockstep
