#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/workers/worker_channel.h"

namespace lockstep {

/// Acts on the failure of a channel on behalf of callers that do not wait in it, but on a device or for a
/// connection.
class FailureWatch {
 public:
  /// Calls `act` once, in this object's own thread, after `channel` has failed.
  FailureWatch(std::shared_ptr<WorkerChannel> channel, std::function<void()> act);
  /// Blocks while `act` runs.
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

 private:
  void wait_and_act(const std::function<void()>& act);

  const std::shared_ptr<WorkerChannel> channel_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool has_failed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_ending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last, since it uses all other members
};

}  // namespace lockstep
