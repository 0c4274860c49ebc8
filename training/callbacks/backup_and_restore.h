#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/checkpoints/backup.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Makes a fit go on where an earlier process of it ended, to the step: it saves the model, the optimizers,
/// the scalers, every replica's random stream and buffers, the place in the dataset, what the epoch has
/// summed up so far, the callbacks' states and the history, and restores them as the next fit begins. With as
/// many replicas that fit comes to the same end, bit by bit, as one that was never interrupted; with another
/// number each example still comes exactly once an epoch.
///
/// A fit that StopOnSignal ends is saved after that step. See Backup for what is written, and for what is
/// thrown; a checkpoint that cannot be written at the end of the fit ends it with std::system_error. A state
/// with a loss, a trained parameter or an optimizer's state that is not finite, or that differs between
/// replicas, is not saved: NotFinite and InconsistentReplicas end the fit. Throws InvalidArgument as the fit
/// begins for a metric that has no restore().
class BackupAndRestore : public Callback {
 public:
  /// With `best` the checkpoint of the epoch with the best value is kept besides the last ones, and epochs
  /// that have a better one than all before are saved whether a checkpoint is due or not. Where that cannot
  /// be written, such as on a full disk, an earlier one stays the best that there is.
  explicit BackupAndRestore(const BackupOptions& options, const std::optional<MonitorOptions>& best = {});

  std::string name() const override { return "BackupAndRestore"; }
  /// What is the best so far, for a fit that goes on from there.
  StateValue state(FitState&) override;
  void restore(FitState&, const StateView& saved) override;
  void on_fit_begin(FitState& state) override;
  void on_test_step_end(FitState& state) override;
  void on_save_point(FitState& state) override;
  void on_fit_end(FitState& state) override;

 private:
  bool has_improved(const FitState& state);

  BackupOptions options_;
  std::optional<Monitor> best_;
  int64_t best_step_ = -1;        // whose checkpoint is the best one
  int64_t epochs_seen_ = 0;       // those that best_ knows
  std::optional<Backup> backup_;  // while the fit runs
};

}  // namespace lockstep
