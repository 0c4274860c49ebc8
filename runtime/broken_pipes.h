#pragma once

// Internal: only sources of its layer need it.

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace lockstep {

/// Holds SIGPIPE off the calling thread while it lives, and off the threads that are started meanwhile for
/// good: Gloo writes to connections whose other end may be gone, which would end a process that does not
/// ignore it.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_signals(), &before_);
  }
  ~WithoutBrokenPipes() {
    constexpr timespec kAtOnce{};
    // Those that came meanwhile would be delivered now.
    if (!was_pending_) sigtimedwait(&pipe_signals(), nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  static const sigset_t& pipe_signals() {
    static const sigset_t signals = [] {
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGPIPE);
      return set;
    }();
    return signals;
  }

  bool was_pending_ = false;
  sigset_t before_{};
};

}  // namespace lockstep
