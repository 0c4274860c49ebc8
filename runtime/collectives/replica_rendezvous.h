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
#include "lockstep/runtime/collectives/rank_names.h"
#include "lockstep/runtime/collectives/replica_mailbox.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

struct CollectiveCall;

/// Matches the collectives that the replicas of one process call, and shares out their work.
///
/// Example:
///
///     ReplicaRendezvous rendezvous(2, std::chrono::seconds(30));
///     const auto no_work = [](auto&) { return ReplicaRendezvous::Work(); };
///     const auto meeting = rendezvous.arrive(rank, {.description = "barrier"}, no_work);  // in each thread
///     rendezvous.wait(*meeting);
///
/// The n-th operation of every rank is the same meeting. Arriving does not block. The last rank to arrive
/// prepares the work, which is cut into parts. The replicas' threads do the parts: each does its share when
/// it arrives at another meeting, and any that are left when it waits for that meeting or a later one.
/// Results do not depend on which thread does a part.
///
/// Every wait ends: when the work is done, by abort(), if a rank leaves without joining, or after the
/// timeout. Work that runs elsewhere ends by itself or is ended there.
///
/// Thread-safe.
class ReplicaRendezvous : public std::enable_shared_from_this<ReplicaRendezvous> {
 public:
  /// Contribution of one rank. If descriptions differ, the ranks have called different collectives.
  struct Arrival {
    std::string description;  ///< Operation, reduction, dtype and shape.
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    /// Marks when the device has made the inputs. Null: all tensors are on the CPU.
    std::shared_ptr<StreamFence> ready;
    /// Marks when the device has made the outputs.
    std::shared_ptr<StreamFence> finished;
    /// Gets the memory that this rank's outputs share with those of other ranks, once all have arrived. Null:
    /// the outputs have memory of their own.
    std::shared_ptr<at::Tensor> shared_output = nullptr;
    /// The outputs that this rank's work fills, by their index. Empty: all of them.
    std::vector<char> fills = {};

    bool fills_output(size_t index) const { return fills.empty() || fills[index]; }
  };
  struct Work;
  /// Continues a meeting with its remaining work, or ends it with an error. Any thread may call it, once.
  using Resume = std::function<void(Work, std::exception_ptr)>;
  /// Work cut into parts that different threads may run at the same time.
  struct Work {
    int num_parts = 0;
    std::function<void(int part)> run_part;
    /// Starts work that follows the last part and runs elsewhere, for example in other processes. Null: the
    /// meeting is done. The thread that did the last part calls it, once; it must not block. `sequence` is
    /// the meeting's place. There is no order between different meetings.
    std::function<void(uint64_t sequence, Resume resume)> then;
  };
  /// Makes the work from all ranks' arrivals. The last rank to arrive calls it, once.
  using MakeWork = std::function<Work(std::vector<Arrival>& arrivals)>;

  class Meeting;

  /// `first_rank` is the number of the first of these ranks among all ranks of the channel.
  ReplicaRendezvous(int size, std::chrono::milliseconds timeout, int first_rank = 0);

  /// Sets the names of the ranks, numbered among all ranks of the channel, in errors. Call it while no rank
  /// is inside.
  void name_ranks(const RankNames& names);

  /// The messages between the ranks, by their numbers among all ranks. They begin and end with the
  /// rendezvous's runs.
  ReplicaMailbox& mailbox() { return mailbox_; }

  int size() const { return size_; }
  int first_rank() const { return first_rank_; }

  /// Joins the next operation of `rank`. Never blocks on other ranks. Throws CollectiveMismatch if the
  /// description differs from the first one (the other ranks get it from wait()), and CollectiveAborted after
  /// abort().
  std::shared_ptr<Meeting> arrive(int rank, Arrival arrival, const MakeWork& make_work);

  /// Blocks until the meeting's work is done, and does parts of it and of earlier meetings meanwhile. Throws
  /// the errors of arrive(), errors of the work, and CollectiveAborted if a rank has left without joining or,
  /// naming the missing ranks, after the timeout (`timeout` overrides the rendezvous's own).
  void wait(Meeting& meeting, std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  bool is_done(const Meeting& meeting);
  /// Returns the sequence number of rank 0's next operation.
  uint64_t next_sequence();

  /// Marks that `rank` joins no further operation until enter(): meetings that wait for it fail, naming it.
  void leave(int rank);
  /// Undoes leave() for all ranks. Call it while no rank is inside.
  void enter();
  /// Throws CollectiveMismatch if only some ranks have joined a meeting, or a message was not received. Call
  /// it while no rank is inside.
  void check_complete();
  /// Throws CollectiveAborted(`reason`) in all threads that wait for a missing rank, or that arrive before
  /// reset(). Meetings that all ranks have joined still finish.
  void abort(const std::string& reason);
  /// Restores the state after construction. Call it while no rank is inside.
  void reset();

 private:
  Meeting& meeting_at(uint64_t sequence) LOCKSTEP_REQUIRES(mutex_);
  void begin_work(const std::shared_ptr<Meeting>& meeting, Work work);
  void end_work(Meeting& meeting);
  void fail(Meeting& meeting, std::exception_ptr error) LOCKSTEP_REQUIRES(mutex_);
  void abort_locked(const std::string& reason) LOCKSTEP_REQUIRES(mutex_);
  static bool has_parts(const Meeting& meeting);
  std::shared_ptr<Meeting> earlier_with_parts(uint64_t sequence) const LOCKSTEP_REQUIRES(mutex_);
  bool run_next_part(Meeting& meeting, int rank_share);
  void do_own_share(int rank);
  CollectiveCall call_of(const Meeting& meeting) const;
  /// Returns the id of the replica of a rank of this rendezvous.
  int replica_of(int rank) const { return names_.replica_of(first_rank_ + rank); }

  const int size_;
  const int first_rank_;
  const std::chrono::milliseconds timeout_;
  RankNames names_;
  ReplicaMailbox mailbox_;
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
