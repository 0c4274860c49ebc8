#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/runtime/devices/device_streams.h"

namespace lockstep {

/// Base of c10d backends over a shared ReplicaRendezvous, with one object for each replica. Calls never
/// block. Work::wait() throws what ReplicaRendezvous::wait() throws, and makes the caller's GPU streams wait
/// for the outputs. Derived classes define the work that follows once all local replicas have arrived; see
/// LocalBackend.
///
/// Example:
///
///     LocalChannel channel(2, LocalAlgorithm::kOneDevice, std::chrono::minutes(5));
///     std::vector<at::Tensor> tensors{torch::ones({3})};
///     channel.backend(replica)->allreduce(tensors)->wait();  // in the thread of each replica
class RendezvousBackend : public c10d::Backend {
 public:
  /// Computes SUM, AVG, PRODUCT, MIN or MAX in place on each tensor of the list.
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& options = {}) override;
  /// Copies the tensors of rank `options.rootRank` into those of all ranks.
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  /// Copies rank r's `inputs[0]` into `outputs[0][r]`. The sizes of ranks may differ if the outputs fit them.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  /// Copies rank r's `input` into the r-th of `size` equal parts of `output`. Sizes must be the same on all
  /// ranks.
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  /// Sets the recording that collectives of GPU tensors interrupt while it captures; they are then waited for
  /// at once. Collectives of CPU tensors do not become part of it. Null: no recording. The rank's thread
  /// calls it.
  void record(GraphRecording* recording) { recording_ = recording; }

 protected:
  struct Rank {
    int rank = 0;  ///< Rank among all that the backend serves.
    int size = 1;
  };
  /// `local` is the rank within the rendezvous.
  RendezvousBackend(Rank rank, int local, std::shared_ptr<ReplicaRendezvous> rendezvous)
      : Backend(rank.rank, rank.size), local_(local), rendezvous_(std::move(rendezvous)) {}

  /// Throws InvalidArgument if this backend cannot reduce `tensors` with `op`.
  virtual void check_reduction(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) const;
  // These make the work of a collective. All ranks gave the same `description`.
  virtual ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork gathering(std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork meeting(std::string description) = 0;

 private:
  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, ReplicaRendezvous::Arrival arrival,
                                        const ReplicaRendezvous::MakeWork& make_work);
  c10::intrusive_ptr<c10d::Work> arrive(c10d::OpType type, ReplicaRendezvous::Arrival arrival,
                                        const ReplicaRendezvous::MakeWork& make_work);

  const int local_;
  const std::shared_ptr<ReplicaRendezvous> rendezvous_;
  GraphRecording* recording_ = nullptr;
};

/// Base of channels over RendezvousBackend. Derived classes make the backends.
///
/// Example:
///
///     struct MyChannel : RendezvousChannel {
///       explicit MyChannel(int size) : RendezvousChannel(size, std::chrono::minutes(5)) {
///         for (int rank = 0; rank < size; ++rank) backends_.push_back(make_backend(rendezvous(), rank));
///       }
///     };
class RendezvousChannel : public CollectiveChannel {
 public:
  /// `first_replica` is the id of the first local replica among all replicas.
  RendezvousChannel(int num_local, std::chrono::milliseconds timeout, int first_replica = 0)
      : rendezvous_(std::make_shared<ReplicaRendezvous>(num_local, timeout, first_replica)),
        streams_(std::make_shared<DeviceStreams>()) {}

  void enter() override { rendezvous_->enter(); }
  void leave(int replica) override { rendezvous_->leave(replica); }
  void check_complete() override { rendezvous_->check_complete(); }
  void release(const std::string& reason) override { rendezvous_->abort(reason); }
  void abort(const std::string& reason) override { release(reason); }
  /// Also makes the caller's current streams wait for pending sums, whose memory is about to be reused.
  void reset() override;
  bool is_capturable() const override { return false; }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override;
  // Always 0, since the host waits for every sum and throws if it failed.
  uint64_t num_joined(int) const override { return 0; }
  uint64_t num_intact() const override { return 0; }

 protected:
  const std::shared_ptr<ReplicaRendezvous>& rendezvous() const { return rendezvous_; }
  const std::shared_ptr<DeviceStreams>& streams() const { return streams_; }

 private:
  std::shared_ptr<ReplicaRendezvous> rendezvous_;
  std::shared_ptr<DeviceStreams> streams_;
};

/// Returns one of `streams` for each GPU that holds an output of the ranks.
std::vector<c10::Stream> streams_of(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                                    DeviceStreams& streams);

/// Calls `body` without gradients once all ranks' inputs are ready on their devices, and records when the
/// devices have finished it. GPU work runs on `streams`, so the current stream of the replica that calls this
/// continues meanwhile.
void run_on_devices(std::vector<ReplicaRendezvous::Arrival>& arrivals,
                    const std::vector<c10::Stream>& streams, const std::function<void()>& body);

}  // namespace lockstep
