#pragma once

#include <string>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

class StateView;

/// Something to do while a Trainer fits a model: derive from it, and hand it to fit().
///
/// All calls come from the thread that called fit(), between steps, on every worker alike, in the order in
/// which the callbacks were given. What a callback throws ends the fit and reaches its caller. Devices may
/// still be at work: reading a tensor waits for them, which costs speed where it is done at every step.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_fit_begin(FitState&) {}
  virtual void on_epoch_begin(FitState&) {}
  /// A batch has come; `step` were done before it.
  virtual void on_step_begin(FitState&) {}
  virtual void on_step_end(FitState&) {}
  /// The epoch's training is done, and its logs so far are set; validation comes next, if there is one.
  virtual void on_epoch_trained(FitState&) {}
  virtual void on_test_begin(FitState&) {}
  virtual void on_test_step_end(FitState&) {}
  /// The epoch's logs are complete, validation included; more may be set. Not called for an epoch that stop()
  /// cut short.
  virtual void on_epoch_end(FitState&) {}
  /// All callbacks are done with a step, with an epoch's end, or with what cut one short: what is saved here
  /// is whole. See FitState::resume_state().
  virtual void on_save_point(FitState&) {}
  /// All epochs are done, or stop() was called. Not called where an error ends the fit.
  virtual void on_fit_end(FitState&) {}

  /// Whether fit() is to take the norm of the gradients at each step, for logs' gradient_norm.
  virtual bool needs_gradient_norm() const { return false; }

  /// What a fit that is resumed in another process has to know of this callback; None: nothing. Called by all
  /// workers together, so that it may call their collectives.
  virtual StateValue state(FitState&) { return {}; }
  /// Goes on from it, after on_fit_begin(); `saved` is not None. Throws CheckpointError where it is none of
  /// this callback's.
  virtual void restore(FitState&, const StateView& saved);
  /// What its state is called.
  virtual std::string name() const { return "callback"; }
};

}  // namespace lockstep
