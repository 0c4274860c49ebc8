#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/store/store_client.h"
#include "lockstep/runtime/workers/heartbeat.h"

namespace lockstep {

/// How long a worker looks for the cause of a broken connection. A killed process is noticed within `time`,
/// unless the machine is so busy that the failure detector does not run. The search then continues until the
/// detector has made `detector_rounds` rounds, for at most `longest`.
struct CauseSearch {
  std::chrono::milliseconds time{1000};
  uint64_t detector_rounds = 8;
  std::chrono::milliseconds longest{10'000};
  /// Returns the number of the detector's rounds so far, or nothing if it has stopped. Null if there is no
  /// detector.
  std::function<std::optional<uint64_t>()> rounds = nullptr;
};

/// The failures in the job that one worker knows of: those found by the heartbeat, those that others reported
/// to the store, and those it reports itself. The first failure is the one that counts. Thread-safe.
class WorkerFailures {
 public:
  /// Store key to which failures are appended, one per line.
  static constexpr const char* kKey = "failures";

  /// `names` are the workers' names.
  WorkerFailures(int rank, std::vector<std::string> names, std::shared_ptr<StoreClient> store,
                 CauseSearch search)
      : rank_(rank), names_(std::move(names)), store_(std::move(store)), search_(std::move(search)) {}

  /// Records that `peer` is lost and returns the PeerLost for it. Does not block.
  std::exception_ptr lose(const LostPeer& peer);
  /// Tells the others of a failure of this worker, once. Ignores a PeerLost.
  void report(const std::exception_ptr& error);
  /// Explains a backend's error. Returns the failure that this worker reported, if any; otherwise a PeerLost
  /// with the cause, for which it waits as CauseSearch says. Returns a CollectiveMismatch or
  /// CollectiveAborted unchanged. If the cause is unknown, `op` begins the message, and the others are told
  /// as by report().
  std::exception_ptr explain(const std::string& op, const std::exception_ptr& error);
  /// Returns the failure that this worker reported, if any; otherwise a PeerLost with the cause in another
  /// worker, for which it waits likewise; null if none is known.
  std::exception_ptr find_cause() { return search_cause().cause; }
  /// If a failure has been reported, blocks until all workers except worker 0 have read it or need not,
  /// because they have reported one themselves; for at most `limit`. Worker 0, which has the store, calls
  /// this before it ends.
  void wait_for_readers(std::chrono::milliseconds limit);

  /// Returns the last result of lose(), or null.
  std::exception_ptr lost() const;
  bool has_failed() const;
  /// Returns true if this worker has reported a failure of its own.
  bool is_origin() const;
  const std::string& name_of(int worker) const { return names_.at(static_cast<size_t>(worker)); }

 private:
  class ReportReader;
  struct Found {
    std::exception_ptr cause;
    bool is_store_gone = false;
  };
  void tell(const std::exception_ptr& error);
  Found search_cause();
  void count_reader();

  const int rank_;
  const std::vector<std::string> names_;
  const std::shared_ptr<StoreClient> store_;
  const CauseSearch search_;
  std::atomic<bool> is_counted_{false};  // among the readers
  mutable Mutex mutex_;
  std::exception_ptr lost_ LOCKSTEP_GUARDED_BY(mutex_);
  bool has_failed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr own_ LOCKSTEP_GUARDED_BY(mutex_);  // the reported failure
};

}  // namespace lockstep
