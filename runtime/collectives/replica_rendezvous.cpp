#include "lockstep/runtime/collectives/replica_rendezvous.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"

namespace lockstep {
namespace {

// Profilers tell from it which operators are not those of the rank whose thread calls them.
constexpr const char* kScope = "lockstep::collective";

}  // namespace
/// Guarded by the rendezvous's mutex. Once all ranks have arrived, the last one owns the arrivals. Once the
/// work is ready, the ranks that run parts read the arrivals and the work.
class ReplicaRendezvous::Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  Meeting(uint64_t sequence, int size)
      : sequence_(sequence),
        arrivals_(static_cast<size_t>(size)),
        here_(arrivals_.size()),
        taken_(arrivals_.size()) {}

 private:
  friend class ReplicaRendezvous;
  const uint64_t sequence_;
  std::vector<Arrival> arrivals_;
  std::vector<char> here_;
  std::vector<int> taken_;  // parts that each rank took as its share
  int arrived_ = 0;
  int first_rank_ = -1;
  bool ready_ = false;
  bool done_ = false;
  std::exception_ptr error_;
  Work work_;
  int next_part_ = 0;
  int finished_parts_ = 0;

  /// Call it when the last part has ended, before any rank learns that the meeting is done. From then on each
  /// rank has the only handles of its tensors, and can free them, or give them to autograd without a copy,
  /// however long the other ranks' threads take. A device may still use its tensors, which stay with the
  /// works of the ranks.
  void drop_host_tensors() {
    for (auto& arrival : arrivals_) {
      if (arrival.finished) return;
    }
    work_.run_part = nullptr;
    for (auto& arrival : arrivals_) {
      arrival.inputs.clear();
      arrival.outputs.clear();
      arrival.shared_output.reset();
    }
  }
};

ReplicaRendezvous::ReplicaRendezvous(int size, std::chrono::milliseconds timeout, int first_rank)
    : size_(size),
      first_rank_(first_rank),
      timeout_(timeout),
      mailbox_(timeout),
      next_sequence_(static_cast<size_t>(size), 0),
      has_left_(static_cast<size_t>(size), 0) {}

void ReplicaRendezvous::name_ranks(const RankNames& names) {
  names_ = names;
  mailbox_.name_ranks(names);
}

ReplicaRendezvous::Meeting& ReplicaRendezvous::meeting_at(uint64_t sequence) {
  while (sequence >= first_open_ + open_.size()) {
    open_.push_back(std::make_shared<Meeting>(first_open_ + open_.size(), size_));
  }
  return *open_[sequence - first_open_];
}

CollectiveCall ReplicaRendezvous::call_of(const Meeting& meeting) const {
  return {meeting.sequence_, replica_of(meeting.first_rank_),
          meeting.arrivals_[static_cast<size_t>(meeting.first_rank_)].description};
}

void ReplicaRendezvous::fail(Meeting& meeting, std::exception_ptr error) {
  if (!meeting.error_) meeting.error_ = std::move(error);
  std::erase_if(in_work_, [&](const auto& other) { return other.get() == &meeting; });
  changed_.notify_all();
}

std::shared_ptr<ReplicaRendezvous::Meeting> ReplicaRendezvous::arrive(int rank, Arrival arrival,
                                                                      const MakeWork& make_work) {
  const auto self = static_cast<size_t>(rank);
  arrival.description += names_.where;
  std::shared_ptr<Meeting> meeting;
  bool last = false;
  {
    MutexLock lock(mutex_);
    if (abort_reason_) throw CollectiveAborted(*abort_reason_);
    const uint64_t sequence = next_sequence_[self]++;
    meeting_at(sequence);
    meeting = open_[sequence - first_open_];
    if (meeting->arrived_ == 0) {
      meeting->first_rank_ = rank;
    } else if (const auto& first = meeting->arrivals_[static_cast<size_t>(meeting->first_rank_)];
               first.description != arrival.description) {
      const std::string text = differing_calls(call_of(*meeting), replica_of(rank), arrival.description);
      fail(*meeting, std::make_exception_ptr(CollectiveMismatch(text)));
      throw CollectiveMismatch(text);
    }
    for (size_t other = 0; other < has_left_.size(); ++other) {
      if (has_left_[other] && next_sequence_[other] <= sequence) {
        const std::string missing = std::to_string(replica_of(static_cast<int>(other)));
        fail(*meeting, std::make_exception_ptr(CollectiveMismatch(returned_without_joining(
                           {sequence, replica_of(rank), arrival.description}, missing))));
      }
    }
    meeting->arrivals_[self] = std::move(arrival);
    meeting->here_[self] = 1;
    last = ++meeting->arrived_ == size_;
    if (last) {
      // Every rank enters meetings in order, so those before this one are complete too.
      while (!open_.empty() && open_.front()->arrived_ == size_) {
        open_.pop_front();
        ++first_open_;
      }
    }
  }
  if (last) {
    // Without the lock: this may issue device work, and nobody else can touch the arrivals any more.
    Work work;
    std::exception_ptr error;
    try {
      RECORD_USER_SCOPE(kScope);
      work = make_work(meeting->arrivals_);
    } catch (...) {
      error = std::current_exception();
    }
    if (error) {
      MutexLock lock(mutex_);
      fail(*meeting, error);
    } else {
      begin_work(meeting, std::move(work));
    }
  }
  do_own_share(rank);
  return meeting;
}

void ReplicaRendezvous::begin_work(const std::shared_ptr<Meeting>& meeting, Work work) {
  const bool has_parts = work.num_parts > 0;
  {
    MutexLock lock(mutex_);
    meeting->work_ = std::move(work);
    meeting->ready_ = true;
    meeting->next_part_ = 0;
    meeting->finished_parts_ = 0;
    meeting->taken_.assign(meeting->taken_.size(), 0);
    if (has_parts) in_work_.push_back(meeting);
    changed_.notify_all();
  }
  if (!has_parts) end_work(*meeting);
}

/// Called once all parts have succeeded.
void ReplicaRendezvous::end_work(Meeting& meeting) {
  if (!meeting.work_.then) meeting.drop_host_tensors();
  std::function<void(uint64_t, Resume)> then;
  {
    MutexLock lock(mutex_);
    then = std::exchange(meeting.work_.then, nullptr);
    meeting.ready_ = false;
    meeting.done_ = !then;
    std::erase_if(in_work_, [&](const auto& other) { return other.get() == &meeting; });
    changed_.notify_all();
  }
  if (!then) return;
  const Resume resume = [self = shared_from_this(), again = meeting.shared_from_this()](
                            Work next, std::exception_ptr error) {
    if (!error) return self->begin_work(again, std::move(next));
    MutexLock lock(self->mutex_);
    self->fail(*again, std::move(error));
  };
  try {
    then(meeting.sequence_, resume);
  } catch (...) {
    resume({}, std::current_exception());
  }
}

bool ReplicaRendezvous::run_next_part(Meeting& meeting, int rank_share) {
  int part = 0;
  {
    MutexLock lock(mutex_);
    if (!has_parts(meeting)) return false;
    if (rank_share >= 0) {
      const int share = (meeting.work_.num_parts + size_ - 1) / size_;
      int& taken = meeting.taken_[static_cast<size_t>(rank_share)];
      if (taken == share) return false;
      ++taken;
    }
    part = meeting.next_part_++;
  }
  std::exception_ptr error;
  try {
    RECORD_USER_SCOPE(kScope);
    meeting.work_.run_part(part);
  } catch (...) {
    error = std::current_exception();
  }
  bool all_done = false;
  {
    MutexLock lock(mutex_);
    ++meeting.finished_parts_;
    if (error) fail(meeting, error);
    all_done = !meeting.error_ && meeting.finished_parts_ == meeting.work_.num_parts;
    // No part begins after an error. The waiting ranks wait only for parts that still run: this was the last.
    if (meeting.error_ && meeting.finished_parts_ == meeting.next_part_) changed_.notify_all();
  }
  if (all_done) end_work(meeting);
  return true;
}

bool ReplicaRendezvous::has_parts(const Meeting& meeting) {
  return meeting.ready_ && !meeting.error_ && meeting.next_part_ < meeting.work_.num_parts;
}

std::shared_ptr<ReplicaRendezvous::Meeting> ReplicaRendezvous::earlier_with_parts(uint64_t sequence) const {
  const auto found = std::find_if(in_work_.begin(), in_work_.end(), [&](const auto& meeting) {
    return meeting->sequence_ < sequence && has_parts(*meeting);
  });
  return found == in_work_.end() ? nullptr : *found;
}

void ReplicaRendezvous::do_own_share(int rank) {
  std::vector<std::shared_ptr<Meeting>> meetings;
  {
    MutexLock lock(mutex_);
    meetings = in_work_;
  }
  for (auto& meeting : meetings) {
    while (run_next_part(*meeting, rank)) {
    }
  }
}

void ReplicaRendezvous::wait(Meeting& meeting, std::optional<std::chrono::milliseconds> timeout) {
  const auto limit = timeout.value_or(timeout_);
  const auto deadline = deadline_after(limit);
  while (true) {
    while (run_next_part(meeting, -1)) {
    }
    std::shared_ptr<Meeting> earlier;
    {
      MutexLock lock(mutex_);
      // A running part writes to the caller's tensors, so an error is thrown only once no part runs.
      const bool parts_running = meeting.finished_parts_ != meeting.next_part_;
      if (meeting.error_ && !parts_running) std::rethrow_exception(meeting.error_);
      if (meeting.done_) return;
      if (meeting.arrived_ < size_ && abort_reason_) throw CollectiveAborted(*abort_reason_);
      // Another thread may have made work ready in the meantime, so look again under the lock before
      // sleeping.
      if (has_parts(meeting)) continue;
      earlier = earlier_with_parts(meeting.sequence_);
      if (earlier == nullptr && meeting.arrived_ == size_) {
        // All ranks have arrived, and the remaining work ends by itself. It is finished even after an abort:
        // a rank that gave up would find others writing to its tensors.
        changed_.wait(mutex_);
      } else if (earlier == nullptr) {
        const bool in_time = changed_.wait_until(mutex_, deadline);
        if (!in_time && !meeting.error_ && !abort_reason_ && meeting.arrived_ < size_) {
          const std::string text =
              timed_out(call_of(meeting), limit, missing_ranks(meeting.here_, first_rank_, names_));
          abort_locked(text);
          throw CollectiveAborted(text);
        }
      }
    }
    // Work that runs elsewhere may be done in order, so that this meeting depends on those before it, for
    // which no thread may be waiting.
    if (earlier != nullptr) run_next_part(*earlier, -1);
  }
}

bool ReplicaRendezvous::is_done(const Meeting& meeting) {
  MutexLock lock(mutex_);
  return meeting.done_ || meeting.error_ || abort_reason_;
}

uint64_t ReplicaRendezvous::next_sequence() {
  MutexLock lock(mutex_);
  return next_sequence_[0];
}

void ReplicaRendezvous::leave(int rank) {
  mailbox_.leave(first_rank_ + rank);
  MutexLock lock(mutex_);
  const auto self = static_cast<size_t>(rank);
  has_left_[self] = 1;
  for (auto& meeting : open_) {
    if (meeting->arrived_ == 0 || meeting->here_[self]) continue;
    fail(*meeting, std::make_exception_ptr(CollectiveMismatch(
                       returned_without_joining(call_of(*meeting), std::to_string(replica_of(rank))))));
  }
}

void ReplicaRendezvous::enter() {
  mailbox_.enter();
  MutexLock lock(mutex_);
  has_left_.assign(has_left_.size(), 0);
}

void ReplicaRendezvous::check_complete() {
  {
    MutexLock lock(mutex_);
    for (const auto& meeting : open_) {
      if (meeting->arrived_ == 0) continue;
      throw CollectiveMismatch(
          returned_without_joining(call_of(*meeting), missing_ranks(meeting->here_, first_rank_, names_)));
    }
  }
  mailbox_.check_complete();
}

void ReplicaRendezvous::abort_locked(const std::string& reason) {
  if (!abort_reason_) abort_reason_ = reason;
  changed_.notify_all();
  mailbox_.abort(reason);
}

void ReplicaRendezvous::abort(const std::string& reason) {
  MutexLock lock(mutex_);
  abort_locked(reason);
}

void ReplicaRendezvous::reset() {
  mailbox_.reset();
  MutexLock lock(mutex_);
  open_.clear();
  in_work_.clear();
  first_open_ = 0;
  next_sequence_.assign(next_sequence_.size(), 0);
  has_left_.assign(has_left_.size(), 0);
  abort_reason_.reset();
}

}  // namespace lockstep
