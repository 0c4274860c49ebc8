#pragma once

#include <memory>

#include "lockstep/strategies/core/stop_agreement.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Ends a fit when SIGINT or SIGTERM arrives, after the step that is running; a validation that is running
/// also ends after its current step. If any worker gets the signal, all workers stop after the same step.
/// BackupAndRestore saves that step.
///
/// Example:
///
///     InterruptionGuard interruption;
///     auto stop = std::make_shared<StopOnSignal>(interruption);
///     trainer.fit(batches, {.epochs = 90, .callbacks = {stop}});
///     if (stop->signal() != 0) return 128 + stop->signal();
class StopOnSignal : public Callback {
 public:
  /// `interruption` must outlive this object.
  explicit StopOnSignal(const InterruptionGuard& interruption) : interruption_(interruption) {}
  void on_fit_begin(FitState& state) override;
  void on_step_end(FitState& state) override { check(state); }
  void on_test_step_end(FitState& state) override { check(state); }
  void on_fit_end(FitState&) override { agreement_.reset(); }

  /// Returns SIGINT or SIGTERM if it stopped the fit, whichever worker received it; else 0.
  int signal() const { return signal_; }

 private:
  void check(FitState& state);

  const InterruptionGuard& interruption_;
  std::unique_ptr<StopAgreement> agreement_;
  int signal_ = 0;
};

}  // namespace lockstep
