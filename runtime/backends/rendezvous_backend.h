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

/// What c10d backends over a shared ReplicaRendezvous have in common: one object a replica, calls that never
/// block, and works whose wait() throws what ReplicaRendezvous::wait() throws and makes the waiter's GPU
/// streams wait for the outputs. Derived classes say what is done once all local replicas are there.
class RendezvousBackend : public c10d::Backend {
 public:
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

 protected:
  struct Rank {
    int rank = 0;  ///< among all that the backend serves
    int size = 1;
  };
  /// `local` is the rank in the rendezvous.
  RendezvousBackend(Rank place, int local, std::shared_ptr<ReplicaRendezvous> rendezvous)
      : Backend(place.rank, place.size), local_(local), rendezvous_(std::move(rendezvous)) {}

  /// Throws InvalidArgument for what this backend cannot reduce.
  virtual void check_reduction(const c10d::ReduceOp& op, const std::vector<at::Tensor>& tensors) const;
  // The work of the collectives, which all ranks describe by `description`.
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

/// A channel whose backends are such. Derived classes make them.
class RendezvousChannel : public CollectiveChannel {
 public:
  /// `first_replica` is the first local replica's id among all.
  RendezvousChannel(int num_local, std::chrono::milliseconds timeout, int first_replica = 0)
      : rendezvous_(std::make_shared<ReplicaRendezvous>(num_local, timeout, first_replica)),
        streams_(std::make_shared<DeviceStreams>()) {}

  void enter() override { rendezvous_->enter(); }
  void leave(int replica) override { rendezvous_->leave(replica); }
  void check_complete() override { rendezvous_->check_complete(); }
  void release(const std::string& reason) override { rendezvous_->abort(reason); }
  void abort(const std::string& reason) override { release(reason); }
  /// Also makes the caller's current streams wait for the sums under way, whose memory is about to be used
  /// again.
  void reset() override;
  bool is_capturable() const override { return false; }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override;
  // The host waits for every sum, and throws where it was not made.
  uint64_t num_joined(int) const override { return 0; }
  uint64_t num_intact() const override { return 0; }

 protected:
  const std::shared_ptr<ReplicaRendezvous>& rendezvous() const { return rendezvous_; }
  const std::shared_ptr<DeviceStreams>& streams() const { return streams_; }

 private:
  std::shared_ptr<ReplicaRendezvous> rendezvous_;
  std::shared_ptr<DeviceStreams> streams_;
};

/// `streams`' own for each GPU that a rank's tensors lie on.
std::vector<c10::Stream> streams_of(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                                    DeviceStreams& streams);

/// Runs `body` without gradients, once all ranks' inputs are ready on their devices, and marks when the
/// devices have finished it. On GPUs that is done on `streams`: the replicas' own, of which one happens to
/// come here, go on meanwhile.
void run_on_devices(std::vector<ReplicaRendezvous::Arrival>& arrivals,
                    const std::vector<c10::Stream>& streams, const std::function<void()>& body);

}  // namespace lockstep
