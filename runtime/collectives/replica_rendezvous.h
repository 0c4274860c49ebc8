#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

struct CollectiveCall;

/// Where the replicas of one process meet for a collective.
///
/// Operation number n of every rank is the same meeting. Nobody blocks on arrival: the last to arrive makes
/// the work ready, cut into parts, and parts are done by whichever replica thread has nothing better to do:
/// each takes its share when it next arrives somewhere, and all that is left when it waits. Results do not
/// depend on who does a part.
///
/// Every wait ends: by the work being done, by abort(), because a rank left without joining, or by the
/// timeout. What is done elsewhere ends by itself, or by whoever does it. Thread-safe.
class ReplicaRendezvous : public std::enable_shared_from_this<ReplicaRendezvous> {
 public:
  /// What one rank brings. Ranks whose descriptions differ have called different collectives.
  struct Arrival {
    std::string description;  ///< operation, reduction, dtype and shape
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::shared_ptr<StreamFence> ready;  ///< when the device has made the inputs; null for CPU tensors only
    std::shared_ptr<StreamFence> finished;  ///< when the device has made the outputs
  };
  struct Work;
  /// Takes a meeting up again, with the work that is left or the error that ends it. Any thread may call it,
  /// once.
  using Resume = std::function<void(Work, std::exception_ptr)>;
  /// Work cut into parts that may run at the same time on different threads.
  struct Work {
    int num_parts = 0;
    std::function<void(int part)> run_part;
    /// What follows the last part, done elsewhere, such as by other processes; null: nothing, the meeting is
    /// done. Called once, by whoever did that part; must not block. `sequence` is the meeting's place. Those
    /// of two meetings may be called in any order.
    std::function<void(uint64_t sequence, Resume resume)> then;
  };
  /// Makes the work out of all ranks' arrivals; called once, by the last rank to arrive.
  using MakeWork = std::function<Work(std::vector<Arrival>& arrivals)>;

  class Meeting;

  /// `first_replica` is rank 0's replica, from which errors number the ranks.
  ReplicaRendezvous(int size, std::chrono::milliseconds timeout, int first_replica = 0);

  int size() const { return size_; }
  int first_replica() const { return first_replica_; }

  /// Joins rank `rank`'s next operation; never blocks on other ranks. Throws CollectiveMismatch where its
  /// description differs from the first one (the other ranks get it from wait()), CollectiveAborted after
  /// abort().
  std::shared_ptr<Meeting> arrive(int rank, Arrival arrival, const MakeWork& make_work);

  /// Blocks until the meeting's work is done, and does parts of it meanwhile. Throws what arrive() throws,
  /// what the work threw, or CollectiveAborted where a rank has left without joining, or naming the missing
  /// ranks after the timeout (`timeout` overrides the rendezvous's own).
  void wait(Meeting& meeting, std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  bool is_done(const Meeting& meeting);
  /// The place of rank 0's next operation.
  uint64_t next_sequence();

  /// `rank` takes part in no further operation until enter(): meetings that wait for it fail, naming it.
  void leave(int rank);
  /// Undoes leave() for all ranks. Call while no rank is inside.
  void enter();
  /// Throws CollectiveMismatch if some ranks have joined a meeting that others have not. Call while no rank
  /// is inside.
  void check_complete();
  /// Releases everyone who waits for a missing rank or will arrive with CollectiveAborted(`reason`), until
  /// reset(). Meetings that all ranks have joined are finished all the same.
  void abort(const std::string& reason);
  /// Back to the state after construction. Call while no rank is inside.
  void reset();

 private:
  Meeting& meeting_at(uint64_t sequence) LOCKSTEP_REQUIRES(mutex_);
  void begin_work(const std::shared_ptr<Meeting>& meeting, Work work);
  void end_work(Meeting& meeting);
  void fail(Meeting& meeting, std::exception_ptr error) LOCKSTEP_REQUIRES(mutex_);
  void abort_locked(const std::string& reason) LOCKSTEP_REQUIRES(mutex_);
  bool run_next_part(Meeting& meeting, int rank_share);
  void do_own_share(int rank);
  CollectiveCall call_of(const Meeting& meeting) const;

  const int size_;
  const int first_replica_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::shared_ptr<Meeting>> open_
      LOCKSTEP_GUARDED_BY(mutex_);  // from sequence number first_open_ on
  uint64_t first_open_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> next_sequence_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<char> has_left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Meeting>> in_work_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<std::string> abort_reason_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
