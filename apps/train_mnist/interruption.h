#pragma once

namespace lockstep::apps {

/// While it lives, SIGINT and SIGTERM are remembered instead of ending the process, so that a step can be
/// finished first; a second one ends it at once with the signal's exit code. One at a time: signals belong to
/// the process.
class InterruptionGuard {
 public:
  InterruptionGuard();
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

  /// SIGINT or SIGTERM if it has come, else 0.
  int signal() const;
};

}  // namespace lockstep::apps
