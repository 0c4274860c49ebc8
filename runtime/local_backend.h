#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/rendezvous_backend.h"

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
class LocalBackend : public RendezvousBackend {
 public:
  /// `streams`: where sums and copies on GPUs are made; shared by the ranks.
  LocalBackend(const std::shared_ptr<Rendezvous>& rendezvous, int rank, LocalAlgorithm algorithm,
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

 private:
  LocalAlgorithm algorithm_;
  std::shared_ptr<DeviceStreams> streams_;
};

/// A channel over LocalBackend.
class LocalGroup : public RendezvousGroup {
 public:
  LocalGroup(int size, LocalAlgorithm algorithm, std::chrono::milliseconds timeout);
};

}  // namespace lockstep
