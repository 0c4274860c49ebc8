#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/backend_factory.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {

class FakeCommunicator;

/// The tests' view and control of the fake. Thread-safe.
class FakeNcclWorld : public std::enable_shared_from_this<FakeNcclWorld> {
 public:
  enum class Fault {
    kNone,
    kMaking,      ///< the rank's backend cannot be made
    kConnecting,  ///< it is made, and throws while it connects
    kAbsent,      ///< it never connects: the others wait for it
    kDeaf,        ///< like kAbsent, and no abort releases it, only heal()
    kCall,        ///< its next collective fails
    kLate,        ///< its next collective goes wrong, which shows only after wait() has returned
    kLater,       ///< likewise, 100 ms after the launch, and wait() does not block
    kSlow,        ///< its next collective begins 100 ms after the launch, and wait() does not block
  };

  BackendFactory factory();
  /// Lasts until heal().
  void set_fault(int rank, Fault fault);
  void heal();

  /// The collectives that a rank has launched on all its communicators since the last clear_calls(), such as
  /// `all_reduce Double[12]`, in order.
  std::vector<std::string> calls(int rank) const;
  void clear_calls();
  /// Whether the backends refuse reduce-scatters, like one that a user has written for gradients only.
  std::atomic<bool> lacks_reduce_scatter{false};
  /// Connected communicators, and existing backends.
  int num_connected() const;
  int num_alive() const { return alive_; }

 private:
  friend class FakeNccl;
  bool has_fault(int rank, Fault fault) const;
  bool take_fault(int rank, Fault fault);
  void add_call(int rank, std::string call);
  std::shared_ptr<FakeCommunicator> communicator(const std::string& id, int size);

  mutable Mutex mutex_;
  ConditionVariable healed_;
  std::map<int, Fault> faults_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<int, std::vector<std::string>> calls_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<FakeCommunicator>> communicators_ LOCKSTEP_GUARDED_BY(mutex_);
  int next_id_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int num_connected_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::atomic<int> alive_{0};
};

/// Mimics NCCL on any device's tensors, in the host's memory. Launches return at once, and each rank's own
/// thread (its stream) executes them in order. Ranks are matched by that order alone: if they call different
/// collectives, the results are garbage, and if a rank is missing, the others wait until abort() or the
/// timeout. Refuses cases that ProcessGroupNCCL refuses or computes wrongly: two ranks on one device (when
/// connecting), several tensors a call, tensors that are not contiguous, complex or empty tensors, means of
/// integers, lists of gathered tensors, and everything after abort(). Sums are made in rank order.
class FakeNccl : public c10d::Backend {
 public:
  FakeNccl(std::shared_ptr<FakeNcclWorld> world, const BackendRequest& request);
  ~FakeNccl() override;

  const std::string getBackendName() const override { return "fake_nccl"; }
  void eagerConnectSingleDevice(at::Device device) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options) override;
  void abort() override;
  void shutdown() override;

  struct Call;
  class Work;
  class Stream;

 private:
  c10::intrusive_ptr<c10d::Work> launch(Call call);

  const std::shared_ptr<FakeNcclWorld> world_;
  const BackendRequest request_;
  Mutex mutex_;
  std::shared_ptr<FakeCommunicator> communicator_ LOCKSTEP_GUARDED_BY(mutex_);
  std::shared_ptr<Stream> stream_ LOCKSTEP_GUARDED_BY(mutex_);
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
