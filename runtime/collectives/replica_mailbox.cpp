#include "lockstep/runtime/collectives/replica_mailbox.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"

namespace lockstep {

void ReplicaMailbox::put(const Route& route, Message message) {
  MutexLock lock(mutex_);
  if (abort_reason_) throw CollectiveAborted(*abort_reason_);
  messages_[route].push_back(std::move(message));
  changed_.notify_all();
}

bool ReplicaMailbox::has(const Route& route) {
  MutexLock lock(mutex_);
  const auto known = messages_.find(route);
  return known != messages_.end() && !known->second.empty();
}

ReplicaMailbox::Message ReplicaMailbox::take(const Route& route, const std::string& description,
                                             std::optional<std::chrono::milliseconds> timeout) {
  const int from = names_.replica_of(route.from);
  const int to = names_.replica_of(route.to);
  const auto limit = timeout.value_or(timeout_);
  const auto deadline = deadline_after(limit);
  MutexLock lock(mutex_);
  auto& waiting = messages_[route];
  while (waiting.empty()) {
    if (abort_reason_) throw CollectiveAborted(*abort_reason_);
    if (left_.contains(route.from)) {
      throw CollectiveMismatch(c10::str("[receive] replica ", to, " waits for ", description,
                                        " from replica ", from, ", which returned without sending it"));
    }
    if (changed_.wait_until(mutex_, deadline) || !waiting.empty() || abort_reason_) continue;
    const std::string text =
        c10::str("[receive] ", description, " from replica ", from, " to replica ", to, " timed out after ",
                 std::chrono::duration<double>(limit).count(), " s; missing: replica ", from);
    abort_reason_ = text;
    changed_.notify_all();
    throw CollectiveAborted(text);
  }
  Message message = std::move(waiting.front());
  waiting.pop_front();
  if (waiting.empty() && route.tag != 0) messages_.erase(route);
  if (message.description != description) {
    throw CollectiveMismatch(c10::str("[receive] replica ", from, " sent ", message.description,
                                      " to replica ", to, ", which expects ", description));
  }
  return message;
}

void ReplicaMailbox::leave(int rank) {
  MutexLock lock(mutex_);
  left_.insert(rank);
  changed_.notify_all();
}

void ReplicaMailbox::enter() {
  MutexLock lock(mutex_);
  left_.clear();
}

void ReplicaMailbox::check_complete() {
  MutexLock lock(mutex_);
  for (const auto& [route, waiting] : messages_) {
    if (waiting.empty()) continue;
    throw CollectiveMismatch(c10::str("[send] replica ", names_.replica_of(route.from), " sent ",
                                      waiting.front().description, " to replica ",
                                      names_.replica_of(route.to), ", which returned without receiving it"));
  }
}

void ReplicaMailbox::abort(const std::string& reason) {
  MutexLock lock(mutex_);
  if (!abort_reason_) abort_reason_ = reason;
  changed_.notify_all();
}

void ReplicaMailbox::reset() {
  MutexLock lock(mutex_);
  messages_.clear();
  left_.clear();
  abort_reason_.reset();
}

}  // namespace lockstep
