#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/training/trainer/callback.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep::testing {

/// Does something to a fit once, at the end of its step `step`, counted over all epochs.
class AfterStep : public Callback {
 public:
  AfterStep(int64_t step, std::function<void(FitState&)> act) : step_(step), act_(std::move(act)) {}
  void on_step_end(FitState& state) override {
    if (state.global_step == step_) act_(state);
  }

 private:
  int64_t step_;
  std::function<void(FitState&)> act_;
};

inline std::shared_ptr<Callback> after_step(int64_t step, std::function<void(FitState&)> act) {
  return std::make_shared<AfterStep>(step, std::move(act));
}

/// Does something to a fit at the end of every step.
class AfterEveryStep : public Callback {
 public:
  explicit AfterEveryStep(std::function<void(FitState&)> act) : act_(std::move(act)) {}
  void on_step_end(FitState& state) override { act_(state); }

 private:
  std::function<void(FitState&)> act_;
};

inline std::shared_ptr<Callback> after_every_step(std::function<void(FitState&)> act) {
  return std::make_shared<AfterEveryStep>(std::move(act));
}

/// Interrupts the fit as a signal does.
inline std::shared_ptr<Callback> interrupt_after(int64_t step) {
  return after_step(step, [](FitState& state) { state.interrupt("enough"); });
}

}  // namespace lockstep::testing
