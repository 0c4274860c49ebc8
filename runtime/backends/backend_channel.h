#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

class BackendConnection;
class CheckedBackend;
struct RankInfo;
class CollectiveOrder;
class FailureWatch;
class WorkerChannel;
class WorkerLayout;

/// What one rank's backend is to be made of.
struct BackendRequest {
  int rank = 0;
  int size = 1;                           ///< the ranks of all processes
  LogicalDevice device;                   ///< the rank's
  c10::intrusive_ptr<c10d::Store> store;  ///< the ranks' common one; this client is the rank's own
  std::chrono::milliseconds timeout{};    ///< of connecting, and of every collective
  int generation = 0;                     ///< how often this channel has connected before
};

/// Makes a rank's backend. Called for all ranks at the same time, each in a thread of its own (in its own
/// process), so that it may wait for the others through the store; what it shares must be thread-safe. Once
/// all have returned, each thread calls eagerConnectSingleDevice() with the rank's device on what it got. The
/// errors of both reach whoever opens the channel.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

/// How a channel over backends reaches the ranks that other worker processes have.
struct BackendWorkers {
  std::shared_ptr<const WorkerLayout> layout;
  /// Compares what the workers call, beside the backends, and tells of failures.
  std::shared_ptr<WorkerChannel> calls;
  std::unique_ptr<CollectiveChannel> on_host;
  c10::intrusive_ptr<c10d::Store> store;  ///< the channel's own part of the workers'
  /// What is known to have gone wrong in another worker, null: nothing; may block for a second.
  std::function<std::exception_ptr()> find_cause;
};

/// What a channel over backends is made of.
struct BackendChannelConfig {
  std::string op;  ///< the cross-device op's name, for errors
  BackendFactory factory;
  std::vector<LogicalDevice> devices;   ///< of this process's ranks
  std::chrono::milliseconds timeout{};  ///< of connecting, and of every collective
  /// What sums of float32 and float64 are rounded to for their way: a shorter floating-point dtype.
  std::optional<at::ScalarType> wire_dtype = std::nullopt;
  /// Null: this process has all ranks.
  std::unique_ptr<BackendWorkers> workers = nullptr;
};

/// A channel over backends that a factory makes, such as NCCL's, with another one beside it for what the
/// replicas exchange on the host.
///
/// What it asks of a backend: allreduce, broadcast and allgather of one dense contiguous tensor a call, with
/// gathers of equal sizes, matched by order; works whose wait() ends by the timeout; abort() from another
/// thread, which ends the rank's works, its connecting included; shutdown(). The rest is done here: calls of
/// ranks that do not fit together are told apart on the host before the later one is launched, and a failed
/// channel is connected anew by new backends when the next run begins.
///
/// Over several workers each launches when its own ranks have come; that the others call the same is seen
/// meanwhile. A failure in any process, or its end, aborts the backends of all and is final: enter() throws
/// its error from then on.
///
/// One object serves the threads of its ranks; release() and abort() may come from any thread at any time.
class BackendChannel : public CollectiveChannel {
 public:
  /// Connects; blocks until all ranks have, one failed, or the timeout is over. Throws InvalidArgument where
  /// the factory does, PeerLost where another worker could not, else BackendError, naming the op, the rank
  /// and the devices.
  explicit BackendChannel(BackendChannelConfig config);
  /// Shuts the backends down, or aborts them where collectives are still open. Blocks as long as they do.
  ~BackendChannel() override;
  BackendChannel(const BackendChannel&) = delete;
  BackendChannel& operator=(const BackendChannel&) = delete;

  ReplicaBackends backends(int replica) const override {
    return {backend(replica), on_host_->backend(replica)};
  }
  void check_usable() const override;
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
  void connect_workers();
  void disconnect();
  void check_launched();
  bool finish_joined();
  bool close_workers();
  void drop_recordings();
  void end();
  RankInfo place_of(size_t local) const;

  BackendChannelConfig config_;
  BackendWorkers* const workers_;  // the config's
  const int first_rank_;
  const int num_ranks_;
  const std::shared_ptr<CollectiveOrder> order_;
  std::unique_ptr<CollectiveChannel> on_host_;
  std::vector<c10::intrusive_ptr<CheckedBackend>> checked_;  // the same objects as backends_
  int generation_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<BackendConnection> connecting_ LOCKSTEP_GUARDED_BY(mutex_);
  Backends connected_ LOCKSTEP_GUARDED_BY(mutex_);  // empty: to be connected by enter()
  bool aborted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t num_intact_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // once finish_joined() was called
  std::vector<std::weak_ptr<GraphRecording>> recordings_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unique_ptr<FailureWatch> watch_;  // last: its thread calls end(). Null: no other workers
};

}  // namespace lockstep
