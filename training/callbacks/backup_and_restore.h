#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/checkpoints/backup.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Resumes a fit at the exact step at which an earlier process ended. It saves the model, the optimizers, the
/// scalers, every replica's random stream and buffers, the position in the dataset, the epoch's sums so far,
/// the callbacks' states and the history, and restores them when the next fit begins. With the same number of
/// replicas the result is bitwise equal to that of an uninterrupted fit; with another number each example is
/// still used exactly once per epoch.
///
/// A fit that StopOnSignal ends is saved after that step. Backup describes the files and the errors. If the
/// checkpoint at the end of the fit cannot be written, the fit ends with std::system_error. A state is not
/// saved if a loss, a trained parameter or an optimizer's state is not finite, or if replicas differ:
/// NotFinite or InconsistentReplicas ends the fit. Throws InvalidArgument when the fit begins if a metric has
/// no restore().
///
/// A finished fit that is started again trains nothing: History::steps is 0. Worker 0 then says so on
/// standard error, unless the program takes the messages by BackupOptions::on_message.
///
/// Example:
///
///     auto backup = std::make_shared<BackupAndRestore>(
///         BackupOptions{.folder = "backup", .save_every = SaveInterval::minutes(10)});
///     trainer.fit(batches, {.epochs = 90, .callbacks = {backup}});
class BackupAndRestore : public Callback {
 public:
  /// If `best` is given, the checkpoint of the best epoch is kept in addition to the last ones, and every
  /// epoch that is better than all before is saved even if no checkpoint is due. If that checkpoint cannot be
  /// written, for example because the disk is full, an earlier one remains the best.
  explicit BackupAndRestore(const BackupOptions& options, const std::optional<MonitorOptions>& best = {});

  std::string name() const override { return "BackupAndRestore"; }
  /// Returns the best value so far and its step, for a fit that resumes.
  StateValue state(FitState&) override;
  void restore(FitState&, const StateView& saved) override;
  void on_fit_begin(FitState& state) override;
  void on_test_step_end(FitState& state) override;
  void on_save_point(FitState& state) override;
  void on_fit_end(FitState& state) override;

 private:
  /// Position at which this fit resumed an earlier one.
  struct Position {
    int64_t epochs;
    int64_t step;
  };

  bool has_improved(const FitState& state);
  bool had_finished(const FitState& state) const;
  void say_finished(const FitState& state) const;

  BackupOptions options_;
  std::optional<Monitor> best_;
  int64_t best_step_ = -1;   // step of the best checkpoint
  int64_t epochs_seen_ = 0;  // epochs that best_ has seen
  std::optional<Position> resumed_;
  std::optional<Backup> backup_;  // while the fit runs
};

}  // namespace lockstep
