#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct NanGuardOptions {
  /// Number of steps between two checks, each of which waits for the devices. The end of every epoch is
  /// always checked; 0 checks only there. kSkip checks every step.
  int64_t every_steps = 0;
  NotFiniteAction action = NotFiniteAction::kStop;
  /// Ends the fit if more than this many consecutive checks have to undo steps.
  int64_t max_consecutive = 3;
  /// Called on worker 0 with a line for each undo. If null, the line goes to stderr.
  std::function<void(const std::string&)> on_message{};
};

/// Checks for a loss, parameter or optimizer state that is NaN or infinite on any replica of any worker. All
/// workers find it in the same step and react alike.
///
/// Undoing steps restores the models with their buffers, the optimizers, the scalers and the epoch's sums of
/// loss and metrics on all replicas, as if the batches of these steps had never run. The fit then continues
/// with the next batch, with fresh random numbers and the learning rate of that step. To be able to undo,
/// each check copies all of this on each replica's device. Pass NanGuard before any other callback that
/// changes the model.
///
/// Example:
///
///     auto guard = std::make_shared<NanGuard>(NanGuardOptions{.action = NotFiniteAction::kSkip});
///     trainer.fit(batches, {.callbacks = {guard}});
class NanGuard : public Callback {
 public:
  /// Throws InvalidArgument if every_steps is negative or max_consecutive is below 1.
  explicit NanGuard(const NanGuardOptions& options = {});
  /// If steps are to be undone, throws InvalidArgument if a metric has no restore() or another NanGuard of
  /// the fit undoes steps too.
  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;

  /// Returns the number of steps undone since the fit began.
  int64_t num_undone() const { return num_undone_; }

 private:
  bool look(FitState& state);
  void keep(FitState& state);
  bool undo(FitState& state, const NotFinite& error);

  NanGuardOptions options_;
  int64_t kept_step_ = 0;  // global step after which the state was kept
  int64_t num_consecutive_ = 0;
  int64_t num_undone_ = 0;
};

}  // namespace lockstep
