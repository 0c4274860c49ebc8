#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/rendezvous_backend.h"

namespace lockstep {

/// How LocalBackend shares out the work of a reduction.
enum class LocalAlgorithm {
  /// Cut into parts that the replicas' threads do at the same time.
  kSplitOverReplicas,
  /// All of it on the first replica's device, by the thread that arrives last; then copied to the others.
  kOneDevice,
};

/// c10d collectives among the replicas of one process, on memory that all of them can read: one backend
/// object a replica, over one shared ReplicaRendezvous.
///
/// It serves the CPU, several replicas on one GPU, and devices of different kinds. Sums are made in replica
/// order whatever the arrival order, so they are bit-equal on every replica and in every run. Calls never
/// block, waiting is done in Work::wait(), which throws what ReplicaRendezvous::wait() throws.
class LocalBackend : public RendezvousBackend {
 public:
  /// `streams`: where sums and copies on GPUs are made; shared by the ranks.
  LocalBackend(const std::shared_ptr<ReplicaRendezvous>& rendezvous, int rank, LocalAlgorithm algorithm,
               std::shared_ptr<DeviceStreams> streams);

  const std::string getBackendName() const override { return "local"; }

 protected:
  ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) override;
  ReplicaRendezvous::MakeWork gathering(std::string description) override;
  ReplicaRendezvous::MakeWork meeting(std::string description) override;

 private:
  LocalAlgorithm algorithm_;
  std::shared_ptr<DeviceStreams> streams_;
};

/// A channel over LocalBackend.
class LocalChannel : public RendezvousChannel {
 public:
  LocalChannel(int size, LocalAlgorithm algorithm, std::chrono::milliseconds timeout);
};

}  // namespace lockstep
