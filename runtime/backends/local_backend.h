#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/rendezvous_backend.h"

namespace lockstep {

/// How LocalBackend divides the work of a reduction.
enum class LocalAlgorithm {
  /// Cuts it into parts that the replicas' threads compute at the same time.
  kSplitOverReplicas,
  /// The thread that arrives last computes all of it on the first replica's device and copies it to the
  /// others.
  kOneDevice,
};

/// Runs c10d collectives among the replicas of one process, on memory that all of them can read. Each replica
/// has one backend object; all share one ReplicaRendezvous.
///
/// Example:
///
///     auto rendezvous = std::make_shared<ReplicaRendezvous>(2, std::chrono::minutes(5));
///     auto streams = std::make_shared<DeviceStreams>();
///     auto rank_0 = c10::make_intrusive<LocalBackend>(rendezvous, 0, LocalAlgorithm::kOneDevice, streams);
///
/// It serves the CPU, several replicas on one GPU, and devices of different kinds. Values are summed in
/// replica order, whatever the order of arrival, so sums are bit-equal on every replica and in every run.
/// Calls never block. Work::wait() does, and throws what ReplicaRendezvous::wait() throws.
class LocalBackend : public RendezvousBackend {
 public:
  /// `streams`, which the ranks share, run sums and copies on GPUs.
  LocalBackend(const std::shared_ptr<ReplicaRendezvous>& rendezvous, int rank, LocalAlgorithm algorithm,
               std::shared_ptr<DeviceStreams> streams);

  const std::string getBackendName() const override { return "local"; }

 protected:
  ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) override;
  ReplicaRendezvous::MakeWork gathering(std::string description) override;
  ReplicaRendezvous::MakeWork scattering(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork exchanging(std::string description) override;
  ReplicaRendezvous::MakeWork meeting(std::string description) override;

 private:
  LocalAlgorithm algorithm_;
  std::shared_ptr<DeviceStreams> streams_;
};

/// A channel over LocalBackend.
///
/// Example:
///
///     LocalChannel channel(2, LocalAlgorithm::kSplitOverReplicas, std::chrono::minutes(5));
///     all_reduce_(*channel.backend(replica), ReduceOp::kSum, {tensor});  // in the thread of each replica
class LocalChannel : public RendezvousChannel {
 public:
  LocalChannel(int size, LocalAlgorithm algorithm, std::chrono::milliseconds timeout);
};

}  // namespace lockstep
