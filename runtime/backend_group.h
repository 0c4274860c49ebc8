#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collective_group.h"
#include "lockstep/runtime/device.h"
#include "lockstep/runtime/local_backend.h"
#include "lockstep/runtime/mutex.h"

namespace lockstep {

class BackendConnection;
class CheckedBackend;
class CollectiveOrder;

/// What one rank's backend is to be made of.
struct BackendRequest {
  int rank = 0;
  std::vector<LogicalDevice> devices;     ///< of all ranks, in their order
  c10::intrusive_ptr<c10d::Store> store;  ///< the ranks' common one; this client is the rank's own
  std::chrono::milliseconds timeout{};    ///< of connecting, and of every collective
  int generation = 0;                     ///< how often this channel has connected before
};

/// Makes a rank's backend. Called for all ranks at the same time, each in a thread of its own, so that it may
/// wait for the others through the store; what it shares must be thread-safe. Once all have returned, each
/// thread calls eagerConnectSingleDevice() with the rank's device on what it got. The errors of both reach
/// whoever opens the channel.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

/// A channel over backends that a factory makes, such as NCCL's, with a LocalGroup beside it for what the
/// replicas exchange on the host.
///
/// What it asks of a backend: allreduce, broadcast and allgather of one dense contiguous tensor a call, with
/// gathers of equal sizes, matched by order; works whose wait() ends by the timeout; abort() from another
/// thread, which ends the rank's works, its connecting included; shutdown(). The rest is done here: calls of
/// ranks that do not fit together are told apart on the host before the later one is launched, and a failed
/// channel is connected anew by new backends when the next run begins.
///
/// One object serves the threads of its ranks; release() and abort() may come from any thread at any time.
class BackendGroup : public CollectiveGroup {
 public:
  /// Connects; blocks until all ranks have, one failed, or the timeout is over. Throws InvalidArgument where
  /// the factory does, else BackendError, naming the op, the rank and the devices. `op` is the cross-device
  /// op's name.
  BackendGroup(std::string op, BackendFactory factory, std::vector<LogicalDevice> devices,
               std::chrono::milliseconds timeout);
  /// Shuts the backends down, or aborts them where collectives are still open. Blocks as long as they do.
  ~BackendGroup() override;
  BackendGroup(const BackendGroup&) = delete;
  BackendGroup& operator=(const BackendGroup&) = delete;

  ReplicaChannel ends(int replica) const override { return {backend(replica), on_host_.backend(replica)}; }
  void enter() override;
  void leave(int replica) override;
  void check_complete() override;
  void release(const std::string& reason) override;
  void abort(const std::string& reason) override;
  void reset() override;
  bool is_capturable() const override { return true; }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override;
  uint64_t num_joined(int replica) const override;
  uint64_t num_intact() const override;

 private:
  using Backends = std::vector<c10::intrusive_ptr<c10d::Backend>>;

  void connect();
  void disconnect();
  void check_launched();
  void finish_joined();
  void drop_recordings();

  const std::string op_;
  const BackendFactory factory_;
  const std::vector<LogicalDevice> devices_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<CollectiveOrder> order_;
  LocalGroup on_host_;
  std::vector<c10::intrusive_ptr<CheckedBackend>> checked_;  // the same objects as backends_
  int generation_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<BackendConnection> connecting_ LOCKSTEP_GUARDED_BY(mutex_);
  Backends connected_ LOCKSTEP_GUARDED_BY(mutex_);  // empty: to be connected by enter()
  bool aborted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t num_intact_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // once finish_joined() was called
  std::vector<std::weak_ptr<GraphRecording>> recordings_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
