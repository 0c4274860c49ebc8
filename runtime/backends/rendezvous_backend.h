#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/collective_label.h"
#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/runtime/collectives/shared_gather.h"
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
class RendezvousBackend : public c10d::Backend, public LabelsCollectives, public SharesGathers {
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
  int num_sharing() const override { return rendezvous_->size(); }
  Gather gather_shared(const at::Tensor& part) override;
  /// Reduces the ranks' inputs for rank r into `outputs[0]` of rank r. Inputs for different ranks may differ
  /// in shape. The output may be the rank's own input for itself, but must share no memory with others.
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& options = {}) override;
  /// The same for one contiguous input, which has an equal part for each rank.
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options = {}) override;
  /// Copies rank s's `inputs[r]` into rank r's `outputs[s]`. Shapes may differ from pair to pair;
  /// Work::wait() throws CollectiveMismatch if those of the two ends do. Inputs and outputs must not overlap.
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override;
  /// The same for equal parts of contiguous tensors. Sizes must be the same on all ranks, and the lists of
  /// sizes empty.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options = {}) override;
  /// Sends a copy of `tensors[0]` to another rank, and does not wait until that has received it. Messages of
  /// tag 0 and 1 are received in the order in which they were sent, those of other tags independently of
  /// them. Tag 1 promises a reply: the works at both ends have the same getSequencenumber(), a number of that
  /// reply.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  /// Receives what `source` sends into `tensors[0]`, which has the same dtype and shape. Work::wait() throws
  /// what ReplicaMailbox::take() throws.
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  /// Sets the recording that collectives of GPU tensors interrupt while it captures; they are then waited for
  /// at once. Collectives of CPU tensors do not become part of it. Null: no recording. The rank's thread
  /// calls it.
  void record(GraphRecording* recording) { recording_ = recording; }
  /// Numbers the replies anew. Call it while no rank is inside.
  void reset() {
    num_sent_.clear();
    num_received_.clear();
  }

 protected:
  struct Rank {
    int rank = 0;  ///< Rank among all that the backend serves.
    int size = 1;
  };
  /// `local` is the rank within the rendezvous.
  RendezvousBackend(Rank rank, int local, std::shared_ptr<ReplicaRendezvous> rendezvous)
      : Backend(rank.rank, rank.size), local_(local), rendezvous_(std::move(rendezvous)) {}

  /// Throws InvalidArgument, which begins with `operation`, if this backend cannot reduce `tensors` by `op`.
  virtual void check_reduction(const char* operation, const c10d::ReduceOp& op,
                               const std::vector<at::Tensor>& tensors) const;
  using Route = ReplicaMailbox::Route;
  // These exchange messages with a rank of another process. The base class has none.
  virtual void send_away(const Route& route, const std::string& description, const at::Tensor& value);
  /// Brings all messages from the sender into the mailbox, up to the first one of this route. Blocks.
  virtual void fetch_from_away(const Route& route);
  ReplicaMailbox& mailbox() const { return rendezvous_->mailbox(); }
  // These make the work of a collective. All ranks gave the same `description`.
  virtual ReplicaRendezvous::MakeWork reduction(c10d::ReduceOp::RedOpType op, std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork broadcast_from(int source, std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork gathering(std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork scattering(c10d::ReduceOp::RedOpType op, std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork exchanging(std::string description) = 0;
  virtual ReplicaRendezvous::MakeWork meeting(std::string description) = 0;

 private:
  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, ReplicaRendezvous::Arrival arrival,
                                        const ReplicaRendezvous::MakeWork& make_work);
  c10::intrusive_ptr<c10d::Work> arrive(c10d::OpType type, ReplicaRendezvous::Arrival arrival,
                                        const ReplicaRendezvous::MakeWork& make_work);

  c10::intrusive_ptr<c10d::Work> exchange(std::string description, std::vector<at::Tensor> outputs,
                                          std::vector<at::Tensor> inputs);
  void check_peer(const char* operation, const std::vector<at::Tensor>& tensors, int peer) const;
  bool is_away(int rank) const;
  void put(const Route& route, const std::string& description, const at::Tensor& value);
  void take(const Route& route, const std::string& description, const at::Tensor& value,
            std::optional<std::chrono::milliseconds> timeout);

  const int local_;
  const std::shared_ptr<ReplicaRendezvous> rendezvous_;
  std::map<int, uint64_t> num_sent_;  // messages of tag 1 to each rank
  std::map<int, uint64_t> num_received_;
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
  /// `first_rank` is the number of the first local rank among all ranks.
  RendezvousChannel(int num_local, std::chrono::milliseconds timeout, int first_rank = 0)
      : rendezvous_(std::make_shared<ReplicaRendezvous>(num_local, timeout, first_rank)),
        streams_(std::make_shared<DeviceStreams>()) {}

  void name_ranks(const RankNames& names) override { rendezvous_->name_ranks(names); }
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

/// Throws CollectiveMismatch if a local rank sends another one a tensor of another shape than that one
/// expects in an all-to-all. `first_rank` is the number of the first arrival's rank.
void check_pairs(const std::vector<ReplicaRendezvous::Arrival>& arrivals, int first_rank);

/// Calls `body` without gradients once all ranks' inputs are ready on their devices, and records when the
/// devices have finished it. GPU work runs on `streams`, so the current stream of the replica that calls this
/// continues meanwhile.
void run_on_devices(std::vector<ReplicaRendezvous::Arrival>& arrivals,
                    const std::vector<c10::Stream>& streams, const std::function<void()>& body);

}  // namespace lockstep
