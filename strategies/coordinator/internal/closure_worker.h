#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/rpc/rpc_client.h"
#include "lockstep/strategies/coordinator/closure_values.h"
#include "lockstep/strategies/coordinator/closure_work.h"

namespace lockstep {

struct ClosureWorkerOptions {
  RpcClientOptions coordinator;
  std::string name;                              ///< such as "worker 1"
  std::chrono::milliseconds beat_interval{300};  ///< time between signs of life to the coordinator
  /// Called between closures. Returns whether the worker should leave once its current closures are done.
  /// Empty: it never leaves.
  std::function<bool()> is_leaving;
};

/// Tells the coordinator, from construction until stop(), that this worker is alive: a thread sends a beat
/// every `beat_interval` over its own connection. So a worker that still prepares its model counts as
/// present, and the job does not end without it. Ignores errors; serve_closures() throws them.
class WorkerHeartbeat {
 public:
  explicit WorkerHeartbeat(ClosureWorkerOptions options);
  /// Calls stop().
  ~WorkerHeartbeat();
  WorkerHeartbeat(const WorkerHeartbeat&) = delete;
  WorkerHeartbeat& operator=(const WorkerHeartbeat&) = delete;

  uint64_t session() const { return session_; }
  /// Stops sending beats. Blocks for at most two seconds if one is being sent.
  void stop();
  /// Like stop(), and tells the coordinator, if connected, that this worker leaves the job.
  void leave();

 private:
  void run();
  void end(bool leaves);

  const ClosureWorkerOptions options_;
  const uint64_t session_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool leaves_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// Runs closures for a coordinator, one after another in the calling thread, until there are no more or this
/// worker leaves. Blocks. Waits up to `connect_timeout` for a lost coordinator.
///
/// Errors from beginning or running a closure, or from a result that cannot be sent, are sent to the
/// coordinator. Throws PeerLost and ClusterError as RpcClient does.
void serve_closures(
    const ClosureWorkerOptions& options, WorkerHeartbeat& heartbeat,
    const std::function<std::unique_ptr<ClosureWork>(uint64_t closure, const std::string& function,
                                                     const ClosureValues& arguments)>& begin);
/// Same, with a heartbeat for the duration of the call.
void serve_closures(
    const ClosureWorkerOptions& options,
    const std::function<std::unique_ptr<ClosureWork>(uint64_t closure, const std::string& function,
                                                     const ClosureValues& arguments)>& begin);

}  // namespace lockstep
