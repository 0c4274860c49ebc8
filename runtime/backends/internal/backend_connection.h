#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/backends/backend_channel.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Which ranks are to be connected, and with what.
struct ConnectionRequest {
  std::string op;                         ///< begins errors
  std::vector<LogicalDevice> devices;     ///< of this process's ranks
  int first_rank = 0;                     ///< of this process's
  int num_ranks = 1;                      ///< of all processes
  c10::intrusive_ptr<c10d::Store> store;  ///< of all ranks
  std::chrono::milliseconds timeout{};
  /// Blocks until the other processes, too, have made their ranks' backends; null: there are none.
  std::function<void()> meet_others;
};

/// One attempt to connect the ranks of a channel, a thread each. Thread-safe.
class BackendConnection : public std::enable_shared_from_this<BackendConnection> {
 public:
  explicit BackendConnection(ConnectionRequest request)
      : request_(std::move(request)), made_(request_.devices.size()) {}

  /// Connects this process's ranks, and blocks until they are, one of them failed, the timeout is over or
  /// abort() came. Those that wait for a rank that failed are released: by the store, and by abort() of their
  /// backends. Throws as BackendChannel's constructor, what meet_others() throws, and the error of abort().
  /// Call it once.
  ///
  /// A thread that ignores its release (NCCL's own initialisation can) is left behind after a few seconds;
  /// it keeps this object alive.
  std::vector<c10::intrusive_ptr<c10d::Backend>> connect(const BackendFactory& factory, int generation);
  /// Ends connect() with `error`.
  void abort(std::exception_ptr error);

 private:
  static constexpr int kNoRank = -1;

  void connect_rank(size_t local, const BackendFactory& factory, const BackendRequest& request);
  void fail(int rank, std::exception_ptr error);
  void meet_others();
  void start_threads(const BackendFactory& factory, int generation);
  void finish_threads(std::chrono::milliseconds grace);
  void release();
  [[noreturn]] void rethrow() const;

  const ConnectionRequest request_;
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::thread> threads_;  // of the thread that calls connect() only

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> made_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t num_made_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_all_made_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // by the other processes, too
  size_t num_connected_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t num_running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int failed_rank_ LOCKSTEP_GUARDED_BY(mutex_) = kNoRank;
};

/// Calls abort() or shutdown() of all backends, each in a thread of its own, since a rank's may wait for the
/// others'. Blocks until they have returned; their errors are dropped.
void abort_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends);
void shut_down_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends);

}  // namespace lockstep
