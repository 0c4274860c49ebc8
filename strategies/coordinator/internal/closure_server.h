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

/// What a closure has returned, once it has.
struct ClosureResult {
  ClosureValues values;
  std::exception_ptr error;
};

struct ClosureServerOptions {
  RpcServerOptions rpc;
  std::optional<uint64_t> max_staleness;  ///< see ClosureQueue
  /// A worker that has not been heard of for so long is lost.
  std::chrono::milliseconds worker_timeout{3'000};
  /// Closures wait for so long without any worker, and fail then.
  std::chrono::milliseconds join_timeout{std::chrono::minutes(5)};
  std::string expected_workers = "any worker";  ///< for that error
  /// Gets a line for each worker that comes or is lost; called by any thread. Null: stderr does.
  std::function<void(const std::string&)> on_message;
};

/// The coordinator's end of the connections to its workers: they ask for closures, whenever they come, and
/// say what became of them. A worker may ask for the next one before the last one has ended. Thread-safe.
class ClosureServer {
 public:
  /// Throws as RpcServer.
  explicit ClosureServer(const ClosureServerOptions& options);
  /// As end(), without waiting for the workers.
  ~ClosureServer();
  ClosureServer(const ClosureServer&) = delete;
  ClosureServer& operator=(const ClosureServer&) = delete;

  int port() const { return rpc_->port(); }

  struct Submitted {
    uint64_t closure = 0;
    std::shared_ptr<const ClosureResult>
        result;  ///< to be read once queue().wait_for() says that it is there
  };
  /// Throws the error of an earlier closure, see ClosureQueue, and InvalidArgument for arguments that cannot
  /// be sent, see check_closure_values().
  Submitted submit(const std::string& function, ClosureValues arguments);

  ClosureQueue& queue() { return *queue_; }
  /// For who may outlive this server, whose end cancels what waits.
  std::shared_ptr<ClosureQueue> shared_queue() { return queue_; }
  std::vector<std::string> workers() const;
  int64_t num_lost_workers() const;

  /// Cancels closures that wait, gives no more, and blocks until all workers that are there know, or are
  /// lost. Waits for workers that have not asked for a closure yet, since they still prepare, for
  /// `join_timeout`.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    std::string name;
    Clock::time_point heard;
    bool has_asked = false;  // for a closure; else it still prepares
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
  void say(const std::string& line) const;

  const ClosureServerOptions options_;
  const uint64_t session_ = new_session();
  const std::shared_ptr<ClosureQueue> queue_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<uint64_t, Worker> workers_ LOCKSTEP_GUARDED_BY(mutex_);    // by session
  std::map<uint64_t, Closure> closures_ LOCKSTEP_GUARDED_BY(mutex_);  // that have not ended
  int64_t num_lost_workers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_ending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Clock::time_point last_at_work_ LOCKSTEP_GUARDED_BY(mutex_) = Clock::now();  // or without work
  std::unique_ptr<RpcServer> rpc_;
  std::thread watching_;
};

}  // namespace lockstep
