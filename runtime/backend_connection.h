#pragma once

// Internal: only sources of its layer need it.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/backend_group.h"
#include "lockstep/runtime/mutex.h"

namespace lockstep {

/// One attempt to connect the ranks of a channel, a thread each. Thread-safe.
class BackendConnection : public std::enable_shared_from_this<BackendConnection> {
 public:
  BackendConnection(std::string op, std::vector<LogicalDevice> devices, std::chrono::milliseconds timeout)
      : op_(std::move(op)), devices_(std::move(devices)), timeout_(timeout), made_(devices_.size()) {}

  /// Connects all ranks, and blocks until they are, one of them failed, the timeout is over or abort() came.
  /// Those that wait for a rank that failed are released: by the store, and by abort() of their backends.
  /// Throws as BackendGroup's constructor, CollectiveAborted after abort(). Call it once.
  ///
  /// A thread that ignores its release (NCCL's own initialisation can) is left behind after a few seconds;
  /// it keeps this object alive.
  std::vector<c10::intrusive_ptr<c10d::Backend>> connect(const BackendFactory& factory, int generation);
  /// Ends connect() with CollectiveAborted(`reason`).
  void abort(const std::string& reason);

 private:
  void connect_rank(int rank, const BackendFactory& factory, const BackendRequest& request);
  void fail(int rank, std::exception_ptr error);
  void start_threads(const BackendFactory& factory, int generation);
  void finish_threads(std::chrono::milliseconds grace);
  void release();
  [[noreturn]] void rethrow() const;

  const std::string op_;
  const std::vector<LogicalDevice> devices_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::thread> threads_;  // of the thread that calls connect() only

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> made_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t num_made_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t num_connected_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t num_running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int failed_rank_ LOCKSTEP_GUARDED_BY(mutex_) = -1;
};

/// Calls abort() or shutdown() of all backends, each in a thread of its own, since a rank's may wait for the
/// others'. Blocks until they have returned; their errors are dropped.
void abort_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends);
void shut_down_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends);

}  // namespace lockstep
