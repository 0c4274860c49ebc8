#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/internal/checked_work.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/collective_label.h"
#include "lockstep/runtime/collectives/internal/collective_order.h"

namespace lockstep {

/// One rank's view of a backend that someone else created. Accepts and refuses the same calls as
/// LocalBackend, on top of backends that demand more and check less: it packs lists of tensors, leaves out
/// empty tensors, makes tensors contiguous, and pads gathers of unequal sizes. A call that does not match the
/// other ranks' calls throws before it is launched.
///
/// Calls block only if the backend's do, and after limit_ahead(). Use it from its rank's thread; between
/// runs, other threads may use it.
class CheckedBackend : public c10d::Backend, public LabelsCollectives {
 public:
  CheckedBackend(RankInfo info, std::shared_ptr<CollectiveOrder> order);

  /// Sends all further calls to `inner`. If `inner` is null, calls throw CollectiveAborted.
  void use(c10::intrusive_ptr<c10d::Backend> inner);
  /// Throws BackendError, or the error that explains it, if a launched collective has failed since. Does not
  /// wait for collectives that still run; the next call checks them.
  void check_launched();
  /// Forgets all launched collectives.
  void forget_launched();
  /// A position in the order of collectives, and whether the collective there still runs.
  struct Open {
    uint64_t position = 0;
    bool is_running = false;
  };
  /// Returns the first launched collective before position `end` that has not completed successfully, or
  /// `end` if there is none. Thread-safe.
  Open first_open(uint64_t end);

  /// From now on a collective is launched only when the other ranks of this process are at most `ahead`
  /// collectives behind. 0: it is launched when all have come to it, and the call returns when all have
  /// launched it. None: without waiting. Call it between runs.
  void limit_ahead(std::optional<uint64_t> ahead) { ahead_ = ahead; }

  /// While on, collectives are captured into a graph and not watched: they do not run until the graph is
  /// replayed. Call it from the rank's thread.
  void capture(bool on) { is_capturing_ = on; }
  /// Announces that the rank is about to launch a graph with collectives in it. Joins the graph as one
  /// collective, and throws as a collective does. After the launch, call the returned function with a
  /// function that tells whether the graph has finished, or with null if the graph was not launched. Call it
  /// from the rank's thread.
  std::function<void(std::function<bool()> is_done)> begin_replay();

  /// Returns how many collectives, and graphs with some, the rank has begun to launch. Call it between runs.
  uint64_t num_launched() const { return num_launched_; }
  /// Joins a collective that the rank does elsewhere. Throws as a collective does.
  void announce(const std::string& description);

  const std::string getBackendName() const override { return info_->op; }
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
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options = {}) override;

 private:
  using Works = CheckedWork::Works;
  using Launch = CheckedWork::Launch;

  c10::intrusive_ptr<c10d::Work> launch(Launch launch);
  c10::intrusive_ptr<c10d::Work> exchange(std::string description, const std::vector<at::Tensor>& outputs,
                                          const std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options);
  c10::intrusive_ptr<CheckedWork> join(Launch launch, bool is_watched);
  void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors) const;
  /// Throws CollectiveAborted if there is no inner backend.
  c10::intrusive_ptr<c10d::Backend> inner() const;

  const std::shared_ptr<const RankInfo> info_;
  const std::shared_ptr<CollectiveOrder> order_;
  bool is_capturing_ = false;
  std::optional<uint64_t> ahead_;
  uint64_t num_launched_ = 0;
  mutable Mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> inner_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<c10::intrusive_ptr<CheckedWork>> launched_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
