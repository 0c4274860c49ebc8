#include "lockstep/strategies/coordinator/internal/closure_queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void ClosureQueue::throw_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

uint64_t ClosureQueue::add() {
  MutexLock lock(mutex_);
  throw_error();
  if (is_closed_)
    throw InvalidArgument("[ClusterCoordinator] expected no more closures, but got one after its end");
  waiting_.insert(num_added_);
  changed_.notify_all();
  return num_added_++;
}

/// A running closure may see all the others that run with it end, in addition to those it has seen end.
bool ClosureQueue::may_begin() const {
  if (error_ || waiting_.empty()) return false;
  if (!max_staleness_ || running_.empty()) return true;
  uint64_t most_seen = 0;
  for (const auto& [closure, run] : running_) most_seen = std::max(most_seen, num_ended_ - run.begin);
  return most_seen + running_.size() <= *max_staleness_;
}

std::optional<uint64_t> ClosureQueue::take(Worker worker, Clock::time_point deadline) {
  MutexLock lock(mutex_);
  bool is_late = false;
  while (!is_closed_ && !may_begin() && !is_late) is_late = !changed_.wait_until(mutex_, deadline);
  if (is_closed_ || !may_begin()) return std::nullopt;
  const uint64_t closure = *waiting_.begin();
  waiting_.erase(waiting_.begin());
  running_[closure] = {.worker = worker, .begin = num_ended_};
  return closure;
}

bool ClosureQueue::is_running(Worker worker, uint64_t closure) const {
  const auto found = running_.find(closure);
  return found != running_.end() && found->second.worker == worker;
}

bool ClosureQueue::finish(Worker worker, uint64_t closure) {
  MutexLock lock(mutex_);
  if (!is_running(worker, closure)) return false;
  running_.erase(closure);
  ++num_ended_;
  changed_.notify_all();
  return true;
}

bool ClosureQueue::fail(Worker worker, uint64_t closure, const std::exception_ptr& error) {
  MutexLock lock(mutex_);
  if (!is_running(worker, closure)) return false;
  running_.erase(closure);
  ++num_ended_;
  not_finished_[closure] = Outcome::kFailed;
  cancel_waiting();
  if (!error_) error_ = error;
  changed_.notify_all();
  return true;
}

void ClosureQueue::fail_waiting(const std::exception_ptr& error) {
  MutexLock lock(mutex_);
  cancel_waiting();
  if (!error_) error_ = error;
  changed_.notify_all();
}

void ClosureQueue::cancel_waiting() {
  for (const uint64_t waits : waiting_) not_finished_[waits] = Outcome::kCancelled;
  waiting_.clear();
}

bool ClosureQueue::lose(Worker worker, const std::vector<uint64_t>& kept) {
  MutexLock lock(mutex_);
  bool has_lost = false;
  bool was_cancelled = false;
  for (auto run = running_.begin(); run != running_.end();) {
    if (run->second.worker != worker || std::find(kept.begin(), kept.end(), run->first) != kept.end()) {
      ++run;
      continue;
    }
    if (error_ || is_closed_) {
      not_finished_[run->first] = Outcome::kCancelled;
      was_cancelled = true;
    } else {
      waiting_.insert(run->first);
    }
    run = running_.erase(run);
    ++num_ended_;  // it may have changed values that the others read
    has_lost = true;
  }
  if (has_lost) changed_.notify_all();
  return was_cancelled;
}

bool ClosureQueue::is_done() {
  MutexLock lock(mutex_);
  throw_error();
  return waiting_.empty() && running_.empty();
}

void ClosureQueue::join() {
  MutexLock lock(mutex_);
  while (!waiting_.empty() || !running_.empty()) changed_.wait(mutex_);
  throw_error();
}

ClosureQueue::Outcome ClosureQueue::wait_for(uint64_t closure) {
  MutexLock lock(mutex_);
  if (closure >= num_added_)
    throw InvalidArgument("[ClusterCoordinator] expected one of " + std::to_string(num_added_) +
                          " closures, but got number " + std::to_string(closure));
  while (waiting_.contains(closure) || running_.contains(closure)) changed_.wait(mutex_);
  const auto found = not_finished_.find(closure);
  return found == not_finished_.end() ? Outcome::kFinished : found->second;
}

bool ClosureQueue::has_open() const {
  MutexLock lock(mutex_);
  return !waiting_.empty() || !running_.empty();
}

bool ClosureQueue::is_running(Worker worker) const {
  MutexLock lock(mutex_);
  return std::any_of(running_.begin(), running_.end(),
                     [worker](const auto& entry) { return entry.second.worker == worker; });
}

bool ClosureQueue::is_open(uint64_t closure) const {
  MutexLock lock(mutex_);
  return waiting_.contains(closure) || running_.contains(closure);
}

uint64_t ClosureQueue::first_open() const {
  MutexLock lock(mutex_);
  uint64_t first = num_added_;
  if (!waiting_.empty()) first = std::min(first, *waiting_.begin());
  if (!running_.empty()) first = std::min(first, running_.begin()->first);
  return first;
}

void ClosureQueue::close() {
  MutexLock lock(mutex_);
  is_closed_ = true;
  cancel_waiting();
  changed_.notify_all();
}

}  // namespace lockstep
