#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {

/// One replica's collectives, for modules that take part in them without being handed a ReplicaContext. It
/// may outlive its strategy, and is usable while its replica is inside a run.
///
/// backend() may be called by any thread, and gives the backend to the replica's own only.
class ReplicaCollectives {
 public:
  /// `strategy` is the name for errors.
  ReplicaCollectives(std::string strategy, int replica_id, int num_replicas);
  ReplicaCollectives(const ReplicaCollectives&) = delete;
  ReplicaCollectives& operator=(const ReplicaCollectives&) = delete;

  /// Replicas in sync.
  int num_replicas() const { return num_replicas_; }

  /// The backend of the run that the calling thread is in, to be used at once.
  /// Throws InvalidArgument, beginning with `who`, in any other thread and outside a run: whoever waited
  /// there would wait for nobody.
  c10::intrusive_ptr<c10d::Backend> backend(const std::string& who) const;

  /// Where waits for the backend's collectives are added up. Call it where backend() may be.
  WaitClock& waits() const { return *waits_; }

  /// While it lives, the thread that made it is inside a run of this replica. `waits` outlives it.
  class Run {
   public:
    Run(ReplicaCollectives& replica, const c10::intrusive_ptr<c10d::Backend>& backend, WaitClock& waits);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    ReplicaCollectives& replica_;
  };

 private:
  const std::string strategy_;
  const int replica_id_;
  const int num_replicas_;
  std::atomic<std::thread::id> thread_;        // no thread's id outside a run
  c10::intrusive_ptr<c10d::Backend> backend_;  // touched by thread_ only
  WaitClock* waits_ = nullptr;                 // likewise
};

/// A module that works together with the other replicas' copies of itself. Strategy::scope() and mirror()
/// bind it to its replica, wherever in a model it is registered.
class ReplicaBound {
 public:
  virtual ~ReplicaBound() = default;
  /// Called by one thread, outside runs. A module that is bound again belongs to the last replica.
  virtual void bind(std::shared_ptr<const ReplicaCollectives> replica) = 0;
};

}  // namespace lockstep
