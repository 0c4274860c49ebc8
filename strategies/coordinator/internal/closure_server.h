#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/rpc/rpc_server.h"
#include "lockstep/strategies/coordinator/internal/closure_messages.h"
#include "lockstep/strategies/coordinator/internal/closure_queue.h"

namespace lockstep {

/// Values that a closure returned, or its error.
struct ClosureResult {
  ClosureValues values;
  std::exception_ptr error;
};

struct ClosureServerOptions {
  RpcServerOptions rpc;
  std::optional<uint64_t> max_staleness;  ///< see ClosureQueue
  /// A worker is lost after this time without a message.
  std::chrono::milliseconds worker_timeout{3'000};
  /// Closures fail if there is no worker for this time.
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  std::string expected_workers = "any worker";  ///< named in that error
  /// Receives a line for each worker that joins or is lost; called from any thread. Null: stderr.
  std::function<void(const std::string&)> on_message;
  /// Returns whether closures are cancelled as soon as there is no worker. Called from another thread. Null:
  /// they are not.
  std::function<bool()> is_ending;
};

/// The coordinator's side of the connections to its workers. Workers may join at any time; they request
/// closures and report the results. A worker may request the next closure before the last has ended.
/// Thread-safe.
class ClosureServer {
 public:
  /// Throws as RpcServer does.
  explicit ClosureServer(const ClosureServerOptions& options);
  /// Like end(), but does not wait for the workers.
  ~ClosureServer();
  ClosureServer(const ClosureServer&) = delete;
  ClosureServer& operator=(const ClosureServer&) = delete;

  int port() const { return rpc_->port(); }

  struct Submitted {
    uint64_t closure = 0;
    std::shared_ptr<const ClosureResult> result;  ///< read it after queue().wait_for() returns
  };
  /// Throws the error of an earlier closure (see ClosureQueue), and InvalidArgument if the arguments cannot
  /// be sent (see check_closure_values()).
  Submitted submit(const std::string& function, ClosureValues arguments);

  ClosureQueue& queue() { return *queue_; }
  /// For owners that may outlive this server. The server's end cancels waiting closures.
  std::shared_ptr<ClosureQueue> shared_queue() { return queue_; }
  std::vector<std::string> workers() const;
  int64_t num_lost_workers() const;

  /// Cancels waiting closures, gives out no more, and blocks until all present workers have been told or are
  /// lost. Waits at most `join_timeout` for workers that have not requested a closure yet because they still
  /// prepare.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    std::string name;
    Clock::time_point heard;
    bool has_asked = false;  // whether it has requested a closure; otherwise it still prepares
    bool was_told_the_end = false;
  };
  struct Closure {
    std::string function;
    ClosureValues arguments;
    std::shared_ptr<ClosureResult> result;
  };

  RpcMessage answer(const WorkerRequest& request);
  RpcMessage answer(const AskForClosure& request);
  RpcMessage answer(const ReportEnd& request);
  RpcMessage answer(const WorkerBeat& request);
  RpcMessage answer(const LeaveJob& request);
  void note(uint64_t session, const std::string& name);
  void lose(uint64_t session, const std::vector<uint64_t>& kept = {}) LOCKSTEP_REQUIRES(mutex_);
  void forget_ended() LOCKSTEP_REQUIRES(mutex_);
  bool is_end_known(Clock::time_point deadline) const LOCKSTEP_REQUIRES(mutex_);
  void watch();
  void fail_without_workers(Clock::time_point now) LOCKSTEP_REQUIRES(mutex_);
  void log(const std::string& line) const;

  const ClosureServerOptions options_;
  const uint64_t session_ = new_session();
  const std::shared_ptr<ClosureQueue> queue_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<uint64_t, Worker> workers_ LOCKSTEP_GUARDED_BY(mutex_);    // by session
  std::map<uint64_t, Closure> closures_ LOCKSTEP_GUARDED_BY(mutex_);  // not ended yet
  int64_t num_lost_workers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_ending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  // Last time with workers, or with nothing to do.
  Clock::time_point last_at_work_ LOCKSTEP_GUARDED_BY(mutex_) = Clock::now();
  std::unique_ptr<RpcServer> rpc_;
  std::thread watching_;
};

}  // namespace lockstep
