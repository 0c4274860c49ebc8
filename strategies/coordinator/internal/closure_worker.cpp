#include "lockstep/strategies/coordinator/internal/closure_worker.h"

#include <exception>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/strategies/coordinator/internal/closure_messages.h"

namespace lockstep {
namespace {

using BeginNamed =
    std::function<std::unique_ptr<ClosureWork>(uint64_t, const std::string&, const ClosureValues&)>;

/// A connection to the coordinator that reconnects if it is lost.
class CoordinatorLink {
 public:
  explicit CoordinatorLink(const RpcClientOptions& coordinator) : coordinator_(coordinator) {}

  RpcMessage call(const RpcMessage& request) {
    for (;;) {
      const bool was_there = client_.has_value();
      try {
        if (!client_) client_.emplace(coordinator_);
        return client_->call(request);
      } catch (const PeerLost&) {
        if (client_ && !client_->is_lost()) throw;  // the coordinator's own error
        client_.reset();
        if (!was_there) throw;  // the coordinator has not come back in time
      }
    }
  }

 private:
  const RpcClientOptions& coordinator_;
  std::optional<RpcClient> client_;
};

/// A closure on its way through the worker's threads.
struct ClosureRun {
  uint64_t coordinator = 0;
  uint64_t closure = 0;
  std::unique_ptr<ClosureWork> work;
  ClosureValues results;
  std::exception_ptr error;
};

/// Holds one run for the next thread.
class Handover {
 public:
  /// Blocks until there is room. Returns false if closed.
  bool put(ClosureRun& run) {
    MutexLock lock(mutex_);
    while (run_ && !is_closed_) changed_.wait(mutex_);
    if (is_closed_) return false;
    run_.emplace(std::move(run));
    changed_.notify_all();
    return true;
  }
  /// Blocks until there is a run. Returns none if closed and empty.
  std::optional<ClosureRun> take() {
    MutexLock lock(mutex_);
    while (!run_ && !is_closed_) changed_.wait(mutex_);
    auto taken = std::exchange(run_, std::nullopt);
    changed_.notify_all();
    return taken;
  }
  /// Blocks until put() would not block.
  void wait_for_room() {
    MutexLock lock(mutex_);
    while (run_ && !is_closed_) changed_.wait(mutex_);
  }
  void close() {
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<ClosureRun> run_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

/// The closures of a coordinator that this worker holds.
class HeldClosures {
 public:
  void add(const ClosureRun& run) {
    MutexLock lock(mutex_);
    if (coordinator_ != run.coordinator) {  // a restarted coordinator does not know earlier ones
      coordinator_ = run.coordinator;
      closures_.clear();
    }
    closures_.insert(run.closure);
  }
  void remove(const ClosureRun& run) {
    MutexLock lock(mutex_);
    if (coordinator_ == run.coordinator) closures_.erase(run.closure);
    changed_.notify_all();
  }
  /// Lists the held closures in the request.
  void list(AskForClosure& request) const {
    MutexLock lock(mutex_);
    request.coordinator = coordinator_;
    request.held.assign(closures_.begin(), closures_.end());
  }
  /// Blocks until no closure is held, or until end().
  void wait_for_none() {
    MutexLock lock(mutex_);
    while (!closures_.empty() && !is_over_) changed_.wait(mutex_);
  }
  /// Ends all waits.
  void end() {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  mutable Mutex mutex_;
  ConditionVariable changed_;
  uint64_t coordinator_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> closures_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

/// The three threads of a worker: one asks for closures and prepares them, the caller's thread runs them, and
/// one finishes and reports them. At most one closure waits between two threads.
class ClosurePipeline {
 public:
  ClosurePipeline(const ClosureWorkerOptions& options, WorkerHeartbeat& heartbeat, const BeginNamed& begin)
      : options_(options), heartbeat_(heartbeat), begin_(begin) {}

  void run() {
    std::thread asking = start_thread(1, [this] { guarded([this] { ask_and_prepare(); }, prepared_); });
    std::thread reporting;
    try {
      reporting = start_thread(1, [this] { guarded([this] { finish_and_report(); }, ran_); });
    } catch (const std::system_error&) {  // no thread could be started
      fail(std::current_exception());
      asking.join();
      throw;
    }
    while (auto next = prepared_.take()) {
      attempt(*next, [&] { next->results = next->work->run(); });
      if (!ran_.put(*next)) break;
      ran_.wait_for_room();  // do not let runs pile up before a slow finish: their values would be old
    }
    ran_.close();
    reporting.join();
    asking.join();
    MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// An exception in one thread ends all of them.
  template <typename Work>
  void guarded(const Work& work, Handover& out) {
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
    out.close();
  }

  void fail(const std::exception_ptr& error) {
    {
      MutexLock lock(mutex_);
      if (!error_) error_ = error;
    }
    prepared_.close();
    ran_.close();
    held_.end();
  }

  template <typename Work>
  static void attempt(ClosureRun& run, const Work& work) {
    if (run.error) return;
    try {
      work();
    } catch (...) {
      run.error = std::current_exception();
    }
  }

  void ask_and_prepare() {
    CoordinatorLink link(options_.coordinator);
    AskForClosure request{.session = session_, .worker = options_.name};
    while (!has_failed()) {
      if (options_.is_leaving && options_.is_leaving()) {
        held_.wait_for_none();
        heartbeat_.stop();  // a beat that arrives later would announce the worker again
        link.call(encode_worker_request(LeaveJob{session_}));
        return;
      }
      held_.list(request);
      auto given = decode_given(link.call(encode_worker_request(request)));
      if (given.kind == GivenClosure::Kind::kEnd) return;
      if (given.kind == GivenClosure::Kind::kNone) continue;
      ClosureRun run{.coordinator = given.coordinator, .closure = given.closure};
      held_.add(run);
      bool looks_ahead = false;
      attempt(run, [&] {
        run.work = begin_(given.closure, given.function, given.arguments);
        looks_ahead = run.work->looks_ahead();
        run.work->prepare();
      });
      if (!prepared_.put(run)) return;
      looks_ahead ? prepared_.wait_for_room() : held_.wait_for_none();
    }
  }

  void finish_and_report() {
    CoordinatorLink link(options_.coordinator);
    while (auto run = ran_.take()) {
      attempt(*run, [&] { run->work->finish(run->results); });
      run->work.reset();
      report(link, *run);
      held_.remove(*run);
    }
  }

  void report(CoordinatorLink& link, ClosureRun& run) {
    ReportEnd report{.session = session_,
                     .worker = options_.name,
                     .ended = {.coordinator = run.coordinator,
                               .closure = run.closure,
                               .results = std::move(run.results),
                               .error = run.error}};
    try {
      link.call(encode_worker_request(report));
    } catch (const InvalidArgument&) {
      // The closure's results cannot be sent.
      if (report.ended.error) throw;
      report.ended.error = std::current_exception();
      link.call(encode_worker_request(report));
    }
  }

  bool has_failed() {
    MutexLock lock(mutex_);
    return error_ != nullptr;
  }

  const ClosureWorkerOptions& options_;
  WorkerHeartbeat& heartbeat_;
  const BeginNamed& begin_;
  const uint64_t session_ = heartbeat_.session();
  Handover prepared_;
  Handover ran_;
  HeldClosures held_;
  Mutex mutex_;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace

WorkerHeartbeat::WorkerHeartbeat(ClosureWorkerOptions options)
    : options_(std::move(options)), session_(new_session()), thread_([this] { run(); }) {}

WorkerHeartbeat::~WorkerHeartbeat() {
  stop();
}

void WorkerHeartbeat::stop() {
  end(false);
}

void WorkerHeartbeat::leave() {
  end(true);
}

void WorkerHeartbeat::end(bool leaves) {
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    leaves_ = leaves;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkerHeartbeat::run() {
  std::optional<RpcClient> client;
  auto coordinator = options_.coordinator;
  coordinator.connect_timeout = std::chrono::seconds(1);  // stop() waits for a connection attempt
  coordinator.call_timeout = std::chrono::seconds(1);
  // Leaves errors to the threads that ask and report, which know how long to wait for the coordinator.
  const auto tell = [&](const WorkerRequest& request) {
    try {
      if (!client) client.emplace(coordinator);
      client->call(encode_worker_request(request));
    } catch (const ClusterError&) {
      client.reset();
    }
  };
  MutexLock lock(mutex_);
  while (!is_over_) {
    lock.unlock();
    tell(WorkerBeat{session_, options_.name});
    lock.lock();
    if (!is_over_) changed_.wait_until(mutex_, std::chrono::steady_clock::now() + options_.beat_interval);
  }
  if (leaves_ && client) tell(LeaveJob{session_});
}

void serve_closures(const ClosureWorkerOptions& options, WorkerHeartbeat& heartbeat,
                    const BeginNamed& begin) {
  ClosurePipeline(options, heartbeat, begin).run();
}

void serve_closures(const ClosureWorkerOptions& options, const BeginNamed& begin) {
  WorkerHeartbeat heartbeat(options);
  serve_closures(options, heartbeat, begin);
}

}  // namespace lockstep
