#pragma once

#include <string>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

class StateView;

/// Base class of objects that act while a Trainer fits a model. Derive from it and pass it to fit().
///
/// All calls come from the thread that called fit(), between steps, on every worker alike, and in the order
/// in which you passed the callbacks. An exception from a callback ends the fit and reaches the caller of
/// fit(). Devices may still be working: reading a tensor waits for them, which is slow if done at every step.
///
/// Example:
///
///     class StopAt : public Callback {
///       void on_epoch_end(FitState& state) override {
///         if (state.logs.find("loss").value_or(1) < 0.1) state.stop("the loss is low enough");
///       }
///     };
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_fit_begin(FitState&) {}
  virtual void on_epoch_begin(FitState&) {}
  /// Called when the next batch is there, after `step` finished steps.
  virtual void on_step_begin(FitState&) {}
  virtual void on_step_end(FitState&) {}
  /// Called after the epoch's training, when its training logs are set, and before validation if there is
  /// one.
  virtual void on_epoch_trained(FitState&) {}
  virtual void on_test_begin(FitState&) {}
  virtual void on_test_step_end(FitState&) {}
  /// Called when the epoch's logs are complete, validation included; callbacks may add to them. Not called
  /// for an epoch that stop() cut short.
  virtual void on_epoch_end(FitState&) {}
  /// Called after all callbacks have finished with a step, with the end of an epoch, or with a stop within
  /// one, so that a state saved here is complete. See FitState::resume_state().
  virtual void on_save_point(FitState&) {}
  /// Called when all epochs are done or stop() was called. Not called if an error ends the fit.
  virtual void on_fit_end(FitState&) {}

  /// Returns whether fit() should compute the norm of the gradients at each step, for `gradient_norm` in the
  /// logs.
  virtual bool needs_gradient_norm() const { return false; }

  /// Returns the state that this callback needs when a fit resumes in another process; None if it needs
  /// nothing. All workers call it together, so it may use collectives.
  virtual StateValue state(FitState&) { return {}; }
  /// Resumes from `saved`, which state() returned and which is not None. Called after on_fit_begin(). Throws
  /// CheckpointError if `saved` is not a state of this callback.
  virtual void restore(FitState&, const StateView& saved);
  /// Returns the name under which its state is saved.
  virtual std::string name() const { return "callback"; }
};

}  // namespace lockstep
