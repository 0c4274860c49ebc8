#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace lockstep {

/// Blocks a signal for the calling thread while this object lives, and permanently for threads started in
/// that time. Use it for signals that a system call sends in addition to its error and that would end a
/// process that does not ignore them: SIGPIPE if the other end of a connection is gone, SIGXFSZ if a file may
/// not grow.
class SignalGuard {
 public:
  explicit SignalGuard(int signal) {
    sigemptyset(&held_);
    sigaddset(&held_, signal);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~SignalGuard() {
    constexpr timespec kAtOnce{};
    // Signals that arrived in the meantime would be delivered now.
    if (!was_pending_) sigtimedwait(&held_, nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  bool was_pending_ = false;
  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace lockstep
