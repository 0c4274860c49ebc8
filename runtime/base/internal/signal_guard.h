#pragma once

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace lockstep {

/// Holds a signal off the calling thread while it lives, and off the threads that are started meanwhile for
/// good: one that a call of the system sends beside its error, and that would end a process which does not
/// ignore it. SIGPIPE comes where the other end of a connection is gone, SIGXFSZ where a file may not grow.
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
    // Those that came meanwhile would be delivered now.
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
