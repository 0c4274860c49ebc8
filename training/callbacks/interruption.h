#pragma once

namespace lockstep {

/// While it lives, SIGINT and SIGTERM are remembered instead of ending the process, so that a step can be
/// finished and saved first; a second one ends the process at once with the signal's exit code, 130 or 143.
/// The same signal again within a fifth of a second counts as one: some launchers send it twice. One guard at
/// a time: signals belong to the process.
class InterruptionGuard {
 public:
  /// With `from_first_step` the first signal ends the process as well, likewise, until begin_steps(): there
  /// is nothing to save yet, and what it does, such as waiting for other workers, may take long.
  explicit InterruptionGuard(bool from_first_step = false);
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

  void begin_steps();

  /// SIGINT or SIGTERM if it has come, else 0. Thread-safe.
  int signal() const;
};

}  // namespace lockstep
