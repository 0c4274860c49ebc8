#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/backend_factory.h"
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

/// Connects a channel over backends with the ranks of other worker processes.
struct BackendWorkers {
  std::shared_ptr<const WorkerLayout> layout;
  /// Compares the calls of all workers, alongside the backends, and reports failures.
  std::shared_ptr<WorkerChannel> calls;
  std::unique_ptr<CollectiveChannel> on_host;
  c10::intrusive_ptr<c10d::Store> store;  ///< The channel's own part of the workers' store.
  /// Returns the known error of another worker, or null. May block for a second, or up
  /// to ten on a busy machine.
  std::function<std::exception_ptr()> find_cause;
};

/// Configures a BackendChannel.
struct BackendChannelConfig {
  std::string op;  ///< Name of the cross-device op, for errors.
  BackendFactory factory;
  std::vector<LogicalDevice> devices;                       ///< Devices of this process's ranks.
  std::chrono::milliseconds timeout{};                      ///< Limit of connecting and of every collective.
  std::optional<at::ScalarType> wire_dtype = std::nullopt;  ///< See ReplicaBackends.
  /// Null: this process has all ranks.
  std::unique_ptr<BackendWorkers> workers = nullptr;
};

/// A channel over backends that a factory makes, such as NCCL's. A second channel carries the values that
/// replicas exchange on the host.
///
/// Example:
///
///     BackendChannelConfig config{.op = "NCCL", .factory = make_backend};
///     config.devices = parse_devices({"gpu:0", "gpu:1"});
///     config.timeout = std::chrono::minutes(30);
///     BackendChannel channel(std::move(config));
///
/// A backend must offer allreduce, broadcast and _allgather_base of one dense contiguous tensor for each
/// call, matched by order; works whose wait() ends by the timeout; shutdown(); and an abort() that another
/// thread may call and that ends the rank's works and its connecting. For ReplicaContext::all_to_all() it
/// must offer alltoall, too. Reduce-scatters use _reduce_scatter_base, or allreduce if the backend does not
/// support that. The channel does the rest. It compares the ranks' calls on the host and refuses one that
/// does not match before it is launched. After a failure, it connects new backends when the next run begins.
///
/// Over several workers, each worker launches a collective when its own ranks have arrived, and the workers
/// compare their calls meanwhile. If any process fails or dies, the backends of all are aborted for good:
/// from then on enter() throws the error.
///
/// The threads of all ranks share one object. Any thread may call release() and abort() at any time.
class BackendChannel : public CollectiveChannel {
 public:
  /// Connects, and blocks until all ranks have connected, one has failed, or the timeout has passed. Throws
  /// InvalidArgument if the factory does, PeerLost if another worker could not connect, and otherwise
  /// BackendError naming the op, the rank and the devices.
  explicit BackendChannel(BackendChannelConfig config);
  /// Shuts the backends down, or aborts them if collectives are still open. Blocks until they have ended.
  ~BackendChannel() override;
  BackendChannel(const BackendChannel&) = delete;
  BackendChannel& operator=(const BackendChannel&) = delete;

  ReplicaBackends backends(int replica) const override;
  void name_ranks(const RankNames& names) override;
  void check_usable() const override;
  void enter() override;
  void leave(int replica) override;
  void check_complete() override;
  void release(const std::string& reason) override;
  void abort(const std::string& reason) override;
  void reset() override;
  bool occupies_devices() const override;
  void keep_together(int num_runs) override;
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
  void end_all(const Backends& backends);
  RankInfo rank_info(size_t local) const;

  BackendChannelConfig config_;
  BackendWorkers* const workers_;  // config_.workers
  const int first_rank_;
  const int num_ranks_;
  const std::shared_ptr<CollectiveOrder> order_;
  std::unique_ptr<CollectiveChannel> on_host_;
  std::vector<c10::intrusive_ptr<CheckedBackend>> checked_;  // The same objects as backends_.
  int generation_ = 0;
  bool is_kept_together_ = false;
  int num_settling_runs_ = 0;  // runs with collectives after a connection in which all launch together
  int settling_runs_left_ = 0;
  uint64_t launched_before_run_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<BackendConnection> connecting_ LOCKSTEP_GUARDED_BY(mutex_);
  Backends connected_ LOCKSTEP_GUARDED_BY(mutex_);  // Empty if enter() has to connect.
  bool aborted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t num_intact_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // Valid once finish_joined() was called.
  std::vector<std::weak_ptr<GraphRecording>> recordings_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unique_ptr<FailureWatch> watch_;  // Last, since its thread calls end(). Null: no workers.
};

}  // namespace lockstep
