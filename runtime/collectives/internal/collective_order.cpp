#include "lockstep/runtime/collectives/internal/collective_order.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"

namespace lockstep {

CollectiveOrder::CollectiveOrder(int size, int first_rank)
    : size_(size),
      first_rank_(first_rank),
      next_(static_cast<size_t>(size), 0),
      launched_(static_cast<size_t>(size), 0),
      has_left_(static_cast<size_t>(size), 0) {}

CollectiveOrder::Joined CollectiveOrder::join(int rank, const std::string& operation) {
  const std::string description = operation + names_.where;
  const size_t self = index_of(rank);
  MutexLock lock(mutex_);
  if (abort_error_) std::rethrow_exception(abort_error_);
  const uint64_t sequence = next_[self];
  if (sequence == first_open_ + open_.size()) {
    open_.push_back({description, rank, std::vector<char>(static_cast<size_t>(size_), 0), 0});
  }
  Call& call = open_[sequence - first_open_];
  if (call.description != description) {
    throw CollectiveMismatch(differing_calls({sequence, names_.replica_of(call.first_rank), call.description},
                                             names_.replica_of(rank), description));
  }
  ++next_[self];
  call.here[self] = 1;
  ++call.joined;
  changed_.notify_all();
  for (int other = first_rank_; other < first_rank_ + size_; ++other) {
    if (has_left_[index_of(other)] && next_[index_of(other)] <= sequence)
      throw CollectiveMismatch(returned_without_joining({sequence, names_.replica_of(rank), description},
                                                        std::to_string(names_.replica_of(other))));
  }
  const bool is_complete = call.joined == size_;
  // Every rank joins calls in order, so the calls before a complete one are complete too.
  while (!open_.empty() && open_.front().joined == size_) {
    open_.pop_front();
    ++first_open_;
  }
  return {sequence, is_complete};
}

void CollectiveOrder::wait_until_joined(int rank, uint64_t sequence, uint64_t ahead,
                                        std::chrono::milliseconds timeout) {
  if (sequence < ahead) return;
  MutexLock lock(mutex_);
  wait_for_ranks({rank, sequence - ahead, timeout}, next_);
}

void CollectiveOrder::wait_until_launched(int rank, uint64_t sequence, std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  launched_[index_of(rank)] = sequence + 1;
  changed_.notify_all();
  wait_for_ranks({rank, sequence, timeout}, launched_);
}

void CollectiveOrder::wait_for_ranks(const Wait& wait, const std::vector<uint64_t>& counts) {
  const auto is_there = [&](size_t rank) { return counts[rank] > wait.sequence; };
  const auto deadline = deadline_after(wait.timeout);
  for (bool in_time = true;;) {
    if (abort_error_) std::rethrow_exception(abort_error_);
    if (std::all_of(counts.begin(), counts.end(), [&](uint64_t count) { return count > wait.sequence; }))
      return;
    const std::string description =
        wait.sequence < first_open_ ? "a collective" : open_[wait.sequence - first_open_].description;
    const CollectiveCall call{wait.sequence, names_.replica_of(wait.rank), description};
    std::vector<char> here;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      here.push_back(is_there(rank) ? 1 : 0);
      if (has_left_[rank] && !is_there(rank))
        throw CollectiveMismatch(returned_without_joining(
            call, std::to_string(names_.replica_of(first_rank_ + static_cast<int>(rank)))));
    }
    if (!in_time)
      throw CollectiveAborted(timed_out(call, wait.timeout, missing_ranks(here, first_rank_, names_)));
    in_time = changed_.wait_until(mutex_, deadline);
  }
}

void CollectiveOrder::leave(int rank) {
  const size_t self = index_of(rank);
  MutexLock lock(mutex_);
  has_left_[self] = 1;
  changed_.notify_all();
  if (abort_error_ || next_[self] == first_open_ + open_.size()) return;
  const Call& call = open_[next_[self] - first_open_];
  throw CollectiveMismatch(
      returned_without_joining({next_[self], names_.replica_of(call.first_rank), call.description},
                               std::to_string(names_.replica_of(rank))));
}

void CollectiveOrder::enter() {
  MutexLock lock(mutex_);
  has_left_.assign(has_left_.size(), 0);
}

void CollectiveOrder::check_complete() const {
  MutexLock lock(mutex_);
  if (open_.empty()) return;
  const Call& call = open_.front();
  throw CollectiveMismatch(
      returned_without_joining({first_open_, names_.replica_of(call.first_rank), call.description},
                               missing_ranks(call.here, first_rank_, names_)));
}

bool CollectiveOrder::is_complete() const {
  MutexLock lock(mutex_);
  return open_.empty();
}

uint64_t CollectiveOrder::num_joined(int rank) const {
  MutexLock lock(mutex_);
  return next_[index_of(rank)];
}

uint64_t CollectiveOrder::joined_by_all() const {
  MutexLock lock(mutex_);
  return first_open_;
}

std::string CollectiveOrder::missing(uint64_t sequence) const {
  MutexLock lock(mutex_);
  // A call from before a reset() is no longer known.
  if (sequence < first_open_ || sequence - first_open_ >= open_.size()) return "";
  return missing_ranks(open_[sequence - first_open_].here, first_rank_, names_);
}

void CollectiveOrder::abort(std::exception_ptr error) {
  MutexLock lock(mutex_);
  if (!abort_error_) abort_error_ = std::move(error);
  changed_.notify_all();
}

std::exception_ptr CollectiveOrder::abort_error() const {
  MutexLock lock(mutex_);
  return abort_error_;
}

void CollectiveOrder::reset() {
  MutexLock lock(mutex_);
  open_.clear();
  first_open_ = 0;
  next_.assign(next_.size(), 0);
  launched_.assign(launched_.size(), 0);
  has_left_.assign(has_left_.size(), 0);
  abort_error_ = nullptr;
}

}  // namespace lockstep
