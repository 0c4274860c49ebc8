#include "lockstep/strategies/coordinator/internal/closure_server.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"

namespace lockstep {
namespace {

/// Short, so that a client's connection, and the thread that closes it, is not blocked for long.
constexpr std::chrono::milliseconds kLongestWait{500};

}  // namespace

ClosureServer::ClosureServer(const ClosureServerOptions& options)
    : options_(options), queue_(std::make_shared<ClosureQueue>(options.max_staleness)) {
  rpc_ = std::make_unique<RpcServer>(options_.rpc, [this](const RpcMessage& message) {
    return std::visit([this](const auto& request) { return answer(request); },
                      decode_worker_request(message));
  });
  watching_ = std::thread([this] { watch(); });
}

ClosureServer::~ClosureServer() {
  queue_->close();
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  watching_.join();
  rpc_->close();
}

void ClosureServer::log(const std::string& line) const {
  if (options_.on_message) {
    options_.on_message(line);
  } else {
    write_error_line(line);
  }
}

ClosureServer::Submitted ClosureServer::submit(const std::string& function, ClosureValues arguments) {
  check_closure_values(arguments);
  MutexLock lock(mutex_);  // a worker that takes it at once waits for its entry
  const uint64_t number = queue_->add();
  auto result = std::make_shared<ClosureResult>();
  closures_[number] = {.function = function, .arguments = std::move(arguments), .result = result};
  return {.closure = number, .result = std::move(result)};
}

std::vector<std::string> ClosureServer::workers() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [session, worker] : workers_) names.push_back(worker.name);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t ClosureServer::num_lost_workers() const {
  MutexLock lock(mutex_);
  return num_lost_workers_;
}

void ClosureServer::note(uint64_t session, const std::string& name) {
  MutexLock lock(mutex_);
  auto& worker = workers_[session];
  worker.heard = Clock::now();
  if (worker.name == name) return;
  worker.name = name;
  lock.unlock();
  log(name + " has joined");
}

RpcMessage ClosureServer::answer(const ReportEnd& request) {
  note(request.session, request.worker);
  const auto& [coordinator, closure, results, error] = request.ended;
  MutexLock lock(mutex_);
  const auto found = closures_.find(closure);
  // Otherwise an earlier coordinator gave out the closure, or another worker has ended it.
  if (coordinator != session_ || found == closures_.end()) return {};
  // Sets the result before anyone learns of it. If it does not count, the one that does overwrites it.
  *found->second.result = {.values = results, .error = error};
  if (!error) {
    if (queue_->finish(request.session, closure)) closures_.erase(found);
  } else if (queue_->fail(request.session, closure, error)) {
    forget_ended();
  }
  changed_.notify_all();
  return {};
}

void ClosureServer::lose(uint64_t session, const std::vector<uint64_t>& kept) {
  if (queue_->lose(session, kept)) forget_ended();
}

/// Drops closures that are no longer open, such as those that a failed round has cancelled.
void ClosureServer::forget_ended() {
  std::erase_if(closures_, [this](const auto& entry) { return !queue_->is_open(entry.first); });
}

RpcMessage ClosureServer::answer(const AskForClosure& request) {
  note(request.session, request.worker);
  {
    MutexLock lock(mutex_);
    workers_[request.session].has_asked = true;
    // Closures that this worker was given but does not hold have not reached it.
    lose(request.session, request.coordinator == session_ ? request.held : std::vector<uint64_t>());
  }
  const auto deadline = Clock::now() + kLongestWait;
  const auto closure = queue_->take(request.session, deadline);
  MutexLock lock(mutex_);
  // The closure is missing if the worker gave up this connection and the closure has ended since.
  const auto found = closure ? closures_.find(*closure) : closures_.end();
  if (found != closures_.end())
    return encode_given({.kind = GivenClosure::Kind::kClosure,
                         .coordinator = session_,
                         .closure = found->first,
                         .function = found->second.function,
                         .arguments = found->second.arguments});
  const auto may_end = [&]() LOCKSTEP_REQUIRES(mutex_) {
    return is_ending_ && !queue_->is_running(request.session);
  };
  while (is_ending_ && !may_end())
    if (!changed_.wait_until(mutex_, deadline)) break;
  if (!may_end()) return encode_given({.coordinator = session_});
  workers_[request.session].was_told_the_end = true;
  changed_.notify_all();
  return encode_given({.kind = GivenClosure::Kind::kEnd});
}

RpcMessage ClosureServer::answer(const WorkerBeat& request) {
  note(request.session, request.worker);
  return {};
}

RpcMessage ClosureServer::answer(const LeaveJob& request) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(request.session);
  if (found == workers_.end()) return {};
  const std::string name = found->second.name;
  lose(request.session);
  workers_.erase(found);
  changed_.notify_all();
  lock.unlock();
  log(name + " has left");
  return {};
}

void ClosureServer::watch() {
  MutexLock lock(mutex_);
  while (!is_over_) {
    changed_.wait_until(mutex_, Clock::now() + options_.worker_timeout / 10);
    std::vector<std::string> lost;
    for (auto entry = workers_.begin(); entry != workers_.end();) {
      const auto& [session, worker] = *entry;
      if (Clock::now() - worker.heard < options_.worker_timeout) {
        ++entry;
        continue;
      }
      if (!worker.was_told_the_end) lost.push_back(worker.name);
      lose(session);
      entry = workers_.erase(entry);
    }
    fail_without_workers(Clock::now());
    num_lost_workers_ += std::ssize(lost);
    if (!lost.empty()) changed_.notify_all();
    lock.unlock();
    for (const auto& name : lost) log(name + " is lost: its closures run elsewhere");
    lock.lock();
  }
}

void ClosureServer::fail_without_workers(Clock::time_point now) {
  if (!workers_.empty() || !queue_->has_open()) {
    last_at_work_ = now;
    return;
  }
  if (options_.is_ending && options_.is_ending()) {
    queue_->fail_waiting(
        std::make_exception_ptr(ClosureCancelled("[ClusterCoordinator] the job was asked to end, and all "
                                                 "workers have left before its last closures")));
    forget_ended();
    return;
  }
  if (now - last_at_work_ < options_.join_timeout) return;
  last_at_work_ = now;
  queue_->fail_waiting(std::make_exception_ptr(
      ClusterError(c10::str("[ClusterCoordinator] expected ", options_.expected_workers, " at ",
                            options_.rpc.host, ":", port(), ", but no worker was there for ",
                            std::chrono::duration<double>(options_.join_timeout).count(), " s"))));
  forget_ended();
}

void ClosureServer::end() {
  queue_->close();
  MutexLock lock(mutex_);
  forget_ended();
  is_ending_ = true;
  const auto deadline = Clock::now() + options_.join_timeout;
  while (!is_end_known(deadline)) changed_.wait_until(mutex_, Clock::now() + options_.worker_timeout);
}

bool ClosureServer::is_end_known(Clock::time_point deadline) const {
  const bool is_late = Clock::now() >= deadline;
  return std::all_of(workers_.begin(), workers_.end(), [is_late](const auto& entry) {
    const auto& worker = entry.second;
    return worker.was_told_the_end || (is_late && !worker.has_asked);
  });
}

}  // namespace lockstep
