#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/rendezvous_backend.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// c10d collectives among all replicas of a job: within a process by memory that its replicas share, and
/// between the worker processes by another backend, with one rank a worker, on CPU tensors. One backend
/// object a local replica, whose rank is the replica's among all.
///
/// A sum is made in replica order within each process, then over the workers as their backend does, once: all
/// replicas get the same bits. Calls never block; Work::wait() throws what ReplicaRendezvous::wait() and the
/// WorkerChannel throw. Sums of integers shorter than 32 bits, and of bools, are made in int32. With a
/// compression sums of float32 and float64 travel by it. Products of complex numbers are refused.
class HierarchicalBackend : public RendezvousBackend {
 public:
  HierarchicalBackend(std::shared_ptr<ReplicaRendezvous> rendezvous, int local,
                      std::shared_ptr<const WorkerLayout> layout, std::shared_ptr<WorkerChannel> channel,
                      std::shared_ptr<DeviceStreams> streams,
                      std::shared_ptr<GradientCompression> compression);

  const std::string getBackendName() const override { return "hierarchical"; }

 protected:
  void check_reduction(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) const override;
  ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) override;
  ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) override;
  ReplicaRendezvous::MakeWork gathering(std::string description) override;
  ReplicaRendezvous::MakeWork meeting(std::string description) override;

 private:
  const std::shared_ptr<const WorkerLayout> layout_;
  const std::shared_ptr<WorkerChannel> channel_;
  const std::shared_ptr<DeviceStreams> streams_;
  const std::shared_ptr<GradientCompression> compression_;
};

/// A channel over HierarchicalBackend. A failure in any process ends it for good: enter() throws its error.
class HierarchicalChannel : public RendezvousChannel {
 public:
  HierarchicalChannel(std::shared_ptr<const WorkerLayout> layout, std::shared_ptr<WorkerChannel> channel,
                      std::chrono::milliseconds timeout,
                      const std::shared_ptr<GradientCompression>& compression = nullptr);

  void check_usable() const override;
  void enter() override;
  void release(const std::string& reason) override;

 private:
  const std::shared_ptr<WorkerChannel> channel_;
};

}  // namespace lockstep
