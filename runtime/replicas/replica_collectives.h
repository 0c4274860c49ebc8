#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <typeindex>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {

/// Base of a replica's shared state (see ReplicaCollectives::shared()) that begins collectives which may
/// still be under way when the run's function returns.
///
/// Example:
///
///     class Prefetcher : public EndsWithRun {
///       void end_run() override { if (work_) std::exchange(work_, nullptr)->wait(); }
///       void abandon_run() noexcept override { work_.reset(); }
///       ...
///     };
///     replica->shared<Prefetcher>();  // in bind(); its end_run() is called after each run
class EndsWithRun {
 public:
  virtual ~EndsWithRun() = default;
  /// Ends them, after the function has returned. Called in the replica's thread. May block, and throws as
  /// collectives do.
  virtual void end_run() = 0;
  /// Forgets them, and all that the next runs would depend on, after a run that has failed on some replica.
  /// Does not block. The last call is made while no replica is inside.
  virtual void abandon_run() noexcept = 0;
};

/// One replica's collectives, for modules that use them without a ReplicaContext. It may outlive its
/// strategy, and is usable while its replica is inside a run.
///
/// Example:
///
///     // In a ReplicaBound module, whose bind() was given `replica`:
///     const WaitClock::Wait wait(replica->waits());
///     all_reduce_(*replica->backend("MyModule"), ReduceOp::kSum, {sum});
class ReplicaCollectives {
 public:
  /// `strategy` is its name, for errors; `axes` are those of its mesh, by default "data" alone.
  ReplicaCollectives(std::string strategy, int replica_id, int num_replicas,
                     std::vector<AxisPosition> axes = {});
  ReplicaCollectives(const ReplicaCollectives&) = delete;
  ReplicaCollectives& operator=(const ReplicaCollectives&) = delete;

  /// Returns the number of replicas in sync.
  int num_replicas() const { return num_replicas_; }

  /// Returns the backend of the run in which the calling thread is, for immediate use. Any thread may call
  /// it, but it throws InvalidArgument, starting with `who`, in other threads than the replica's and outside
  /// a run, where no other replica would take part.
  c10::intrusive_ptr<c10d::Backend> backend(const std::string& who) const;
  /// Returns the replica's place on an axis of the mesh. Any thread may call it. Throws InvalidArgument,
  /// starting with `who`, if there is no such axis.
  const AxisPosition& position(const std::string& who, const std::string& axis) const;
  /// Returns the backends along an axis of the mesh. Otherwise like backend().
  ReplicaBackends backends(const std::string& who, const std::string& axis) const;

  /// Draws random numbers of the rank's own while the result lives; see RankRandom. Throws like backend().
  [[nodiscard]] RankRandom rank_random(const std::string& who) const;

  /// Throws InvalidArgument, starting with `who`, while a CudaGraph is captured, which cannot hold
  /// `operation`. Otherwise like backend().
  void refuse_capture(const std::string& who, const std::string& operation) const;

  /// Returns the clock that adds up waits for the backend's collectives. Call it only where backend() does
  /// not throw.
  WaitClock& waits() const { return *waits_; }

  /// Returns the replica's only object of this type, which its modules share. The first call makes it. Call
  /// it in bind(): it is not thread-safe.
  template <typename T>
  std::shared_ptr<T> shared() const {
    auto& object = shared_[std::type_index(typeid(T))];
    if (object == nullptr) {
      auto made = std::make_shared<T>();
      if constexpr (std::derived_from<T, EndsWithRun>) ends_with_run_.push_back(made);
      object = std::move(made);
    }
    return std::static_pointer_cast<T>(object);
  }

  /// Call it after a run that failed on some replica, while no replica is inside.
  void reset() const noexcept;

  /// Marks, while it lives, that the thread that made it is inside a run of this replica. `waits` must
  /// outlive it.
  class Run {
   public:
    /// `axes` has the backends of each axis; by default, `backend` is that of the only one. Without a
    /// `rank_generator`, which must outlive it, there is no rank_random(). `recording` points to the
    /// recording of the replica's call, if it is captured, and must outlive it too.
    Run(ReplicaCollectives& replica, const c10::intrusive_ptr<c10d::Backend>& backend, WaitClock& waits,
        std::vector<ReplicaBackends> axes = {}, const at::Generator* rank_generator = nullptr,
        GraphRecording* const* recording = nullptr);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Ends what shared state has begun (see EndsWithRun), after the run's function has returned. May block,
    /// and throws as collectives do.
    void finish();

   private:
    ReplicaCollectives& replica_;
    bool is_finished_ = false;
  };

 private:
  void check_caller(const std::string& who) const;

  const std::string strategy_;
  const int replica_id_;
  const int num_replicas_;
  const std::vector<AxisPosition> axes_;
  std::atomic<std::thread::id> thread_;        // No thread's id outside a run.
  c10::intrusive_ptr<c10d::Backend> backend_;  // Only thread_ may use it.
  std::vector<ReplicaBackends> along_axes_;    // The same.
  WaitClock* waits_ = nullptr;                 // The same.
  const at::Generator* rank_generator_ = nullptr;
  GraphRecording* const* recording_ = nullptr;
  mutable std::map<std::type_index, std::shared_ptr<void>> shared_;
  mutable std::vector<std::shared_ptr<EndsWithRun>> ends_with_run_;
};

/// Base of modules that work together with the other replicas' copies of themselves. Strategy::scope() and
/// mirror() bind such a module to its replica, wherever it is registered in a model.
///
/// Example:
///
///     struct SummingImpl : torch::nn::Module, ReplicaBound {
///       void bind(std::shared_ptr<const ReplicaCollectives> own) override { replica_ = std::move(own); }
///       void forward(torch::Tensor x) { all_reduce_(*replica_->backend("Summing"), ReduceOp::kSum, {x}); }
///       std::shared_ptr<const ReplicaCollectives> replica_;
///     };
class ReplicaBound {
 public:
  virtual ~ReplicaBound() = default;
  /// Binds the module to `replica`. One thread calls it, outside runs. If a module is bound again, it belongs
  /// to the last replica.
  virtual void bind(std::shared_ptr<const ReplicaCollectives> replica) = 0;
};

}  // namespace lockstep
