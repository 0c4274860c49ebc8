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

#include "lockstep/runtime/backends/backend_factory.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

/// Describes the ranks to connect.
struct ConnectionRequest {
  std::string op;                         ///< prefix of error messages
  std::vector<LogicalDevice> devices;     ///< devices of this process's ranks
  int first_rank = 0;                     ///< first rank of this process
  int num_ranks = 1;                      ///< number of ranks in all processes
  c10::intrusive_ptr<c10d::Store> store;  ///< store shared by all ranks
  std::chrono::milliseconds timeout{};
  /// Blocks until the other processes have created their backends too. Null if there are no other processes.
  std::function<void()> meet_others;
};

/// Makes one attempt to connect the ranks of a channel, using one thread per rank. Thread-safe.
class BackendConnection : public std::enable_shared_from_this<BackendConnection> {
 public:
  explicit BackendConnection(ConnectionRequest request)
      : request_(std::move(request)), made_(request_.devices.size()) {}

  /// Connects this process's ranks. Blocks until all are connected, one fails, the timeout expires, or
  /// abort() is called. On failure, ranks that wait for the failed one are released through the store and by
  /// abort() of their backends. Throws like BackendChannel's constructor, what meet_others() throws, and the
  /// error passed to abort(). Call it once.
  ///
  /// A thread that does not react to its release (NCCL's own initialisation may not) is left behind after a
  /// few seconds; it keeps this object alive.
  std::vector<c10::intrusive_ptr<c10d::Backend>> connect(const BackendFactory& factory, int generation);
  /// Makes connect() fail with `error`.
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
  std::vector<std::thread> threads_;  // used only by the thread that calls connect()

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> made_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t num_made_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_all_made_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // including those of other processes
  size_t num_connected_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t num_running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  int failed_rank_ LOCKSTEP_GUARDED_BY(mutex_) = kNoRank;
};

/// Call abort() or shutdown() of every backend, each in its own thread, because one rank's call may wait for
/// the others'. Block until all have returned; errors are ignored. abort_all() also calls `meanwhile`, unless
/// it is null, once the threads have started.
void abort_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends,
               const std::function<void()>& meanwhile = nullptr);
void shut_down_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends);

}  // namespace lockstep
