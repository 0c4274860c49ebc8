#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/internal/checked_work.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/internal/collective_order.h"

namespace lockstep {

/// One rank's view of a backend that somebody else made: takes what LocalBackend takes, and refuses what that
/// refuses, over backends that demand more of their callers and check less. Lists are packed, tensors without
/// elements left out, others made contiguous, gathers of unequal sizes padded; calls that do not fit the
/// other ranks' throw before they are launched.
///
/// Calls do not block where the backend's do not. Used by its rank's thread, and between runs by others.
class CheckedBackend : public c10d::Backend {
 public:
  CheckedBackend(RankInfo place, std::shared_ptr<CollectiveOrder> order);

  /// Calls go to `inner` from now on; null: they throw CollectiveAborted.
  void use(c10::intrusive_ptr<c10d::Backend> inner);
  /// Throws BackendError, or what explains it, for a launched collective that has failed meanwhile. Does not
  /// wait for one that still runs, which is looked at next time.
  void check_launched();
  /// Forgets what was launched.
  void forget_launched();
  /// A place in the order of collectives, and whether the one there still runs.
  struct Open {
    uint64_t place = 0;
    bool is_running = false;
  };
  /// The first launched collective before place `end` that has not ended well by now; `end` where all have.
  /// Any thread may call it.
  Open first_open(uint64_t end);

  /// While on, collectives become part of a graph, of which there is nothing to see until it is replayed:
  /// they are not looked after. Called by the rank's thread.
  void capture(bool on) { is_capturing_ = on; }
  /// The rank is about to launch a graph with collectives in it, which counts as one: joins it, and throws as
  /// a collective. What it returns is to be called with what tells whether the graph is done once it was
  /// launched, with null where it was not. Called by the rank's thread.
  std::function<void(std::function<bool()> is_done)> begin_replay();

  const std::string getBackendName() const override { return place_->op; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options = {}) override {
    return allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;

 private:
  using Works = CheckedWork::Works;
  using Launch = CheckedWork::Launch;

  c10::intrusive_ptr<c10d::Work> launch(Launch launch);
  c10::intrusive_ptr<CheckedWork> join(Launch launch, bool is_watched);
  void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors) const;
  /// What travels in place of each.
  std::vector<at::Tensor> shortened(std::vector<at::Tensor> tensors, const c10d::ReduceOp& op) const;
  /// Throws CollectiveAborted where there is none.
  c10::intrusive_ptr<c10d::Backend> inner() const;

  const std::shared_ptr<const RankInfo> place_;
  const std::shared_ptr<CollectiveOrder> order_;
  bool is_capturing_ = false;
  mutable Mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> inner_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<c10::intrusive_ptr<CheckedWork>> launched_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
