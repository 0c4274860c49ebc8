#pragma once

#include <memory>

#include "lockstep/strategies/core/stop_agreement.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Ends a fit after the step in which SIGINT or SIGTERM came, on all workers after the same one where it came
/// to any of them, and not in an epoch's validation before that has ended its step. BackupAndRestore saves
/// that step.
class StopOnSignal : public Callback {
 public:
  /// `interruption` outlives it.
  explicit StopOnSignal(const InterruptionGuard& interruption) : interruption_(interruption) {}
  void on_fit_begin(FitState& state) override;
  void on_step_end(FitState& state) override { check(state); }
  void on_test_step_end(FitState& state) override { check(state); }
  void on_fit_end(FitState&) override { agreement_.reset(); }

  /// SIGINT or SIGTERM where the fit was stopped by it, on whichever worker it came; else 0.
  int signal() const { return signal_; }

 private:
  void check(FitState& state);

  const InterruptionGuard& interruption_;
  std::unique_ptr<StopAgreement> agreement_;
  int signal_ = 0;
};

}  // namespace lockstep
