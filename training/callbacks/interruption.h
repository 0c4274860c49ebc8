#pragma once

namespace lockstep {

/// Catches SIGINT and SIGTERM while it exists, so that a step can be finished and saved before the process
/// ends. A second signal ends the process at once with that signal's exit code, 130 or 143. The same signal
/// again within 0.2 s counts as one, since some launchers send it twice. Signals belong to the process, so
/// create only one guard at a time.
///
/// Example:
///
///     InterruptionGuard interruption;
///     for (const auto& batch : batches) {
///       strategy.run(train_step, model, optimizer, batch);
///       if (interruption.signal() != 0) break;
///     }
class InterruptionGuard {
 public:
  /// If `from_first_step` is true, the first signal also ends the process at once, until begin_steps() is
  /// called: before that there is nothing to save, and the process may be waiting long for other workers.
  explicit InterruptionGuard(bool from_first_step = false);
  ~InterruptionGuard();
  InterruptionGuard(const InterruptionGuard&) = delete;
  InterruptionGuard& operator=(const InterruptionGuard&) = delete;

  void begin_steps();

  /// Returns SIGINT or SIGTERM if it has arrived, else 0. Thread-safe.
  int signal() const;
};

}  // namespace lockstep
