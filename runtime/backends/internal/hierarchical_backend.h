#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/internal/away_messages.h"
#include "lockstep/runtime/backends/rendezvous_backend.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// c10d collectives among all replicas of a job. Replicas of one process communicate through shared memory;
/// worker processes communicate through another backend, with one rank per worker, on CPU tensors. Each local
/// replica has one backend object, whose rank is the replica's number among all replicas.
///
/// A sum adds the replicas of each process in replica order, then the workers' sums as their backend does,
/// once, so all replicas get the same bits. Calls never block; Work::wait() throws what
/// ReplicaRendezvous::wait() and WorkerChannel throw. Integers shorter than 32 bits and bools are summed in
/// int32. If a compression is given, all-reduced sums of float32 and float64 are sent compressed. Products of
/// complex numbers are refused.
class HierarchicalBackend : public RendezvousBackend {
 public:
  HierarchicalBackend(std::shared_ptr<ReplicaRendezvous> rendezvous, int local,
                      std::shared_ptr<const WorkerLayout> layout, std::shared_ptr<WorkerChannel> channel,
                      std::shared_ptr<AwayMessages> messages, std::shared_ptr<DeviceStreams> streams,
                      std::shared_ptr<GradientCompression> compression);

  const std::string getBackendName() const override { return "hierarchical"; }

 protected:
  void check_reduction(const char* operation, const c10d::ReduceOp& op,
                       const std::vector<at::Tensor>& tensors) const override;
  void send_away(const Route& route, const std::string& description, const at::Tensor& value) override;
  void fetch_from_away(const Route& route) override;
  ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) override;
  ReplicaRendezvous::MakeWork gathering(std::string description) override;
  ReplicaRendezvous::MakeWork scattering(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork exchanging(std::string description) override;
  ReplicaRendezvous::MakeWork meeting(std::string description) override;

 private:
  const std::shared_ptr<const WorkerLayout> layout_;
  const std::shared_ptr<WorkerChannel> channel_;
  const std::shared_ptr<AwayMessages> messages_;
  const std::shared_ptr<DeviceStreams> streams_;
  const std::shared_ptr<GradientCompression> compression_;
};

/// A channel that uses HierarchicalBackend. After a failure in any process the channel cannot be used again:
/// enter() throws the error.
class HierarchicalChannel : public RendezvousChannel {
 public:
  HierarchicalChannel(std::shared_ptr<const WorkerLayout> layout, std::shared_ptr<WorkerChannel> channel,
                      std::chrono::milliseconds timeout,
                      const std::shared_ptr<GradientCompression>& compression = nullptr);

  ~HierarchicalChannel() override;
  HierarchicalChannel(const HierarchicalChannel&) = delete;
  HierarchicalChannel& operator=(const HierarchicalChannel&) = delete;

  void check_usable() const override;
  void enter() override;
  /// Also blocks until all messages to other workers have been handed over.
  void check_complete() override;
  void release(const std::string& reason) override;

 private:
  const std::shared_ptr<WorkerChannel> channel_;
  const std::shared_ptr<AwayMessages> messages_;
};

}  // namespace lockstep
