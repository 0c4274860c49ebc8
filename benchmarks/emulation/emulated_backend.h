#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/emulation/emulated_links.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/collective_label.h"

namespace lockstep::benchmarks {

/// The collectives and messages of some ranks on emulated links, in the order of each rank's calls.
///
/// Thread-safe.
class EmulatedGroup {
 public:
  using Moment = EmulatedDevice::Moment;

  /// `ranks`: those of the group among all ranks.
  EmulatedGroup(std::shared_ptr<EmulatedMachines> machines, std::vector<int> ranks);

  int rank_of(int member) const { return ranks_[static_cast<size_t>(member)]; }
  EmulatedDevice& device(int member) { return machines_->device(rank_of(member)); }

  /// Notes that a member's device comes to its next collective. Returns the collective's number.
  uint64_t join(int member, CollectiveKind kind, double bytes);
  /// Returns when a collective ends that all members have joined.
  Moment end_of(uint64_t number);
  /// Notes a message. Those of a pair with the same `stream` arrive in order.
  void send(int from, int to, int stream, double bytes);
  /// Returns when the next message arrives, which has been sent.
  Moment arrival(int from, int to, int stream);
  /// Forgets all that is under way.
  void restart();

 private:
  struct Collective {
    size_t num_joined = 0;
    Moment begin{}, end{};
  };
  using Way = std::tuple<int, int, int>;

  const std::shared_ptr<EmulatedMachines> machines_;
  const std::vector<int> ranks_;
  Mutex mutex_;
  std::vector<uint64_t> num_joined_ LOCKSTEP_GUARDED_BY(mutex_);     // by member
  std::vector<Collective> collectives_ LOCKSTEP_GUARDED_BY(mutex_);  // by number
  Moment free_ LOCKSTEP_GUARDED_BY(mutex_);                          // when the last one ends
  std::map<Way, std::deque<Moment>> messages_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// One rank's view of a backend whose collectives and messages take the time of emulated links.
class EmulatedBackend : public c10d::Backend, public LabelsCollectives {
 public:
  EmulatedBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<EmulatedGroup> group, int member);

  const std::string getBackendName() const override { return "emulated"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
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
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source, int tag) override;

 private:
  template <typename Begin>
  c10::intrusive_ptr<c10d::Work> begin(CollectiveKind kind, double bytes, const Begin& call);

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const std::shared_ptr<EmulatedGroup> group_;
  const int member_;
};

}  // namespace lockstep::benchmarks
