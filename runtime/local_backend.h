#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collective_group.h"
#include "lockstep/runtime/device_streams.h"
#include "lockstep/runtime/rendezvous.h"

namespace lockstep {

/// How LocalBackend shares out the work of a reduction.
enum class LocalAlgorithm {
  /// Cut into parts that the replicas' threads do at the same time.
  kSplitOverReplicas,
  /// All of it on the first replica's device, by the thread that arrives last; then copied to the others.
  kOneDevice,
};

/// c10d collectives among the replicas of one process, on memory that all of them can read: one backend
/// object a replica, over one shared Rendezvous.
///
/// It serves the CPU, several replicas on one GPU, and devices of different kinds. Sums are made in replica
/// order whatever the arrival order, so they are bit-equal on every replica and in every run. Calls never
/// block, waiting is done in Work::wait(), which throws what Rendezvous::wait() throws.
class LocalBackend : public c10d::Backend {
 public:
  /// `streams`: where sums and copies on GPUs are made; shared by the ranks.
  LocalBackend(std::shared_ptr<Rendezvous> rendezvous, int rank, LocalAlgorithm algorithm,
               std::shared_ptr<DeviceStreams> streams);

  const std::string getBackendName() const override { return "local"; }

  /// SUM, AVG, PRODUCT, MIN or MAX, in place on each tensor of the list.
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options = {}) override;
  /// Copies rank `options.rootRank`'s tensors into everyone's.
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  /// `outputs[0][r]` becomes rank r's `inputs[0]`. Ranks may bring different sizes, where the outputs fit
  /// them.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  /// While it captures, collectives of GPU tensors interrupt `recording` and are waited for at once; those of
  /// CPU tensors are no part of it. Null: none. Called by the rank's thread.
  void record(GraphRecording* recording) { recording_ = recording; }

 private:
  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, Rendezvous::Arrival arrival,
                                        const Rendezvous::MakeWork& make_work);
  c10::intrusive_ptr<c10d::Work> arrive(c10d::OpType type, Rendezvous::Arrival arrival,
                                        const Rendezvous::MakeWork& make_work);

  std::shared_ptr<Rendezvous> rendezvous_;
  LocalAlgorithm algorithm_;
  std::shared_ptr<DeviceStreams> streams_;
  GraphRecording* recording_ = nullptr;
};

/// A channel over LocalBackend.
class LocalGroup : public CollectiveGroup {
 public:
  LocalGroup(int size, LocalAlgorithm algorithm, std::chrono::milliseconds timeout);

  void enter() override { rendezvous_->enter(); }
  void leave(int replica) override { rendezvous_->leave(replica); }
  void check_complete() override { rendezvous_->check_complete(); }
  void release(const std::string& reason) override { rendezvous_->abort(reason); }
  void abort(const std::string& reason) override { release(reason); }
  /// Also makes the caller's current streams wait for the sums under way.
  void reset() override;
  bool is_capturable() const override { return false; }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override;
  // Sums that all have joined are made, whatever happens.
  uint64_t num_joined(int) const override { return 0; }
  uint64_t num_intact() const override { return 0; }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<DeviceStreams> streams_;
};

}  // namespace lockstep
