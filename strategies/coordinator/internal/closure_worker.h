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
  std::chrono::milliseconds beat_interval{300};  ///< how often the coordinator hears that this worker lives
  /// Asked between two closures: whether the worker is to go once those that it has are done. Empty: it is
  /// not.
  std::function<bool()> is_leaving;
};

/// Tells the coordinator, from construction to stop(), that this worker is there: a thread sends a beat every
/// `beat_interval` over a connection of its own. A worker that still prepares its model counts as one that is
/// there, so that the job does not end under it. Errors are ignored; serve_closures() meets and throws them.
class WorkerHeartbeat {
 public:
  explicit WorkerHeartbeat(ClosureWorkerOptions options);
  /// As stop().
  ~WorkerHeartbeat();
  WorkerHeartbeat(const WorkerHeartbeat&) = delete;
  WorkerHeartbeat& operator=(const WorkerHeartbeat&) = delete;

  uint64_t session() const { return session_; }
  /// Sends no more beats. Blocks for at most two seconds, while one is on its way.
  void stop();
  /// As stop(), and tells a coordinator that is connected that this worker leaves the job.
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

/// Runs closures for a coordinator, one after another in the calling thread, until it has no more or this
/// worker leaves. Blocks. Waits for a lost coordinator for its `connect_timeout`.
///
/// Errors of beginning or running a closure go to the coordinator, as does the error of a result that cannot
/// be sent. Throws PeerLost and ClusterError as RpcClient.
void serve_closures(
    const ClosureWorkerOptions& options, WorkerHeartbeat& heartbeat,
    const std::function<std::unique_ptr<ClosureWork>(uint64_t closure, const std::string& function,
                                                     const ClosureValues& arguments)>& begin);
/// The same with a heartbeat that lasts as long as the call.
void serve_closures(
    const ClosureWorkerOptions& options,
    const std::function<std::unique_ptr<ClosureWork>(uint64_t closure, const std::string& function,
                                                     const ClosureValues& arguments)>& begin);

}  // namespace lockstep
