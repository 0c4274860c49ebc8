#pragma once

namespace lockstep {

/// While it lives, SIGINT and SIGTERM are remembered instead of ending the process, so that a step can be
/// finished and saved first; a second one ends the process at once with the signal's exit code, 130 or 143.
/// The same signal again within a fifth of a second counts as one: some launchers send it twice. One guard at
/// a time: signals belong to the process.
class InterruptionGuard {
 public:
  InterruptionGuard();
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

  /// SIGINT or SIGTERM if it has come, else 0. Thread-safe.
  int signal() const;
};

}  // namespace lockstep
