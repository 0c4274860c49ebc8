#pragma once

#include "lockstep/apps/train_mnist/interruption.h"
#include "lockstep/training/callback.h"

namespace lockstep::apps {

/// Ends a fit after the step in which SIGINT or SIGTERM came.
class StopOnSignal : public Callback {
 public:
  static constexpr const char* kReason = "a signal came";

  /// `interruption` outlives it.
  explicit StopOnSignal(const InterruptionGuard& interruption) : interruption_(interruption) {}
  void on_step_end(FitState& state) override { check(state); }
  void on_test_step_end(FitState& state) override { check(state); }

 private:
  void check(FitState& state) const {
    if (interruption_.signal() != 0) state.stop(kReason);
  }
  const InterruptionGuard& interruption_;
};

}  // namespace lockstep::apps
