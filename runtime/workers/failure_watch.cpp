#include "lockstep/runtime/workers/failure_watch.h"

#include <utility>

namespace lockstep {

FailureWatch::FailureWatch(std::shared_ptr<WorkerChannel> channel, std::function<void()> act)
    : channel_(std::move(channel)), thread_([this, act = std::move(act)] { wait_and_act(act); }) {
  channel_->watch([this] {
    MutexLock lock(mutex_);
    has_failed_ = true;
    changed_.notify_all();
  });
}

FailureWatch::~FailureWatch() {
  channel_->watch(nullptr);
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void FailureWatch::wait_and_act(const std::function<void()>& act) {
  {
    MutexLock lock(mutex_);
    while (!has_failed_ && !is_ending_) changed_.wait(mutex_);
    if (!has_failed_) return;
  }
  act();
}

}  // namespace lockstep
