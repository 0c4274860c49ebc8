#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct NanGuardOptions {
  /// Looks after so many steps, which waits for the devices, besides the end of every epoch; 0: only there.
  /// kSkip looks after every step.
  int64_t every_steps = 0;
  NotFiniteAction action = NotFiniteAction::kStop;
  /// Ends the fit where steps have to be undone at more consecutive looks than this.
  int64_t max_consecutive = 3;
  /// Gets a line for what was undone, on worker 0. Null: it goes to stderr.
  std::function<void(const std::string&)> on_message{};
};

/// Looks for a loss that was NaN or infinite on any replica of any worker, and for a parameter or optimizer
/// state that is: all workers find the same step, in the same step, and do the same about it.
///
/// To undo steps is to put back the models with their buffers, the optimizers, the scalers, and what the
/// epoch's loss and metrics have summed up, on all replicas, as if the batches of these steps had not been
/// there; the fit goes on with the next batch, with fresh random numbers and the learning rate of its place.
/// It takes a copy of all that on each replica's device at every look. Before any other callback that
/// changes the model.
class NanGuard : public Callback {
 public:
  /// Throws InvalidArgument for a negative number of steps, and for a max_consecutive below 1.
  explicit NanGuard(const NanGuardOptions& options = {});
  /// Throws InvalidArgument where steps are to be undone and a metric has no restore(), or another NanGuard
  /// of the fit is to undo some.
  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;

  /// How many steps were undone since the fit began.
  int64_t num_undone() const { return num_undone_; }

 private:
  bool look(FitState& state);
  void keep(FitState& state);
  bool undo(FitState& state, const NotFinite& error);

  NanGuardOptions options_;
  int64_t kept_step_ = 0;  // of all steps: after which the state was kept
  int64_t num_consecutive_ = 0;
  int64_t num_undone_ = 0;
};

}  // namespace lockstep
