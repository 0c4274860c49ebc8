#include "lockstep/strategies/closure_server.h"

#include <algorithm>
#include <iostream>
#include <utility>

namespace lockstep {
namespace {

/// So that a client's connection, and who closes it, is not held up for long.
constexpr std::chrono::milliseconds kLongestWait{500};

}  // namespace

ClosureServer::ClosureServer(const ClosureServerOptions& options)
    : options_(options), queue_(options.max_staleness) {
  rpc_ = std::make_unique<RpcServer>(options_.rpc, [this](const RpcMessage& message) {
    return std::visit([this](const auto& request) { return answer(request); },
                      decode_worker_request(message));
  });
  watching_ = std::thread([this] { watch(); });
}

ClosureServer::~ClosureServer() {
  queue_.close();
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  watching_.join();
  rpc_->close();
}

void ClosureServer::say(const std::string& line) const {
  if (options_.on_message) {
    options_.on_message(line);
  } else {
    std::cerr << line << std::endl;
  }
}

ClosureServer::Submitted ClosureServer::submit(const std::string& function, ClosureValues arguments) {
  MutexLock lock(mutex_);  // a worker who is given it at once waits for what it is
  const uint64_t number = queue_.add();
  auto result = std::make_shared<Result>();
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
  say(name + " has come");
}

void ClosureServer::note_end(uint64_t session, const EndedClosure& ended) {
  MutexLock lock(mutex_);
  const auto found = closures_.find(ended.closure);
  if (found == closures_.end()) return;  // another worker has ended it
  // Before anybody is told that it is there. Where it does not count, it is overwritten by the one that does.
  *found->second.result = {.values = ended.results, .error = ended.error};
  if (!ended.error) {
    if (queue_.finish(session, ended.closure)) closures_.erase(found);
    return;
  }
  if (!queue_.fail(session, ended.closure, ended.error)) return;
  std::erase_if(closures_, [this](const auto& entry) { return !queue_.is_open(entry.first); });
}

RpcMessage ClosureServer::answer(const AskForClosure& request) {
  note(request.session, request.worker);
  if (request.ended) note_end(request.session, *request.ended);
  // What else it was given has not reached it.
  queue_.lose(request.session);
  const auto closure = queue_.take(request.session, ClosureQueue::Clock::now() + kLongestWait);
  MutexLock lock(mutex_);
  if (closure) {
    const auto& [function, arguments, result] = closures_.at(*closure);
    return encode_given({.kind = GivenClosure::Kind::kClosure,
                         .closure = *closure,
                         .function = function,
                         .arguments = arguments});
  }
  if (!is_ending_) return encode_given({.kind = GivenClosure::Kind::kNone});
  workers_[request.session].was_told_the_end = true;
  changed_.notify_all();
  return encode_given({.kind = GivenClosure::Kind::kEnd});
}

RpcMessage ClosureServer::answer(const WorkerBeat& request) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(request.session);
  if (found != workers_.end()) found->second.heard = Clock::now();
  return {};
}

void ClosureServer::watch() {
  MutexLock lock(mutex_);
  while (!is_over_) {
    changed_.wait_until(mutex_, Clock::now() + options_.worker_timeout / 10);
    const auto now = Clock::now();
    for (auto entry = workers_.begin(); entry != workers_.end();) {
      const auto& [session, worker] = *entry;
      if (now - worker.heard < options_.worker_timeout) {
        ++entry;
        continue;
      }
      const bool is_lost = !worker.was_told_the_end;
      num_lost_workers_ += is_lost ? 1 : 0;
      const std::string name = worker.name;
      queue_.lose(session);
      entry = workers_.erase(entry);
      if (is_lost) say(name + " is lost: its closures run elsewhere");
    }
    changed_.notify_all();
  }
}

void ClosureServer::end() {
  queue_.close();
  MutexLock lock(mutex_);
  is_ending_ = true;
  const auto all_know = [this] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& entry) { return entry.second.was_told_the_end; });
  };
  while (!all_know()) changed_.wait(mutex_);
}

}  // namespace lockstep
