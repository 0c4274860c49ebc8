#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

class AveragedWeights;

struct ExponentialMovingAverageOptions {
  /// Weight of the earlier average at each update: average = decay * average + (1 - decay) * model.
  double decay = 0.999;
  /// Uses min(decay, (1 + n) / (10 + n)) at update n, counted from 0, so that the average forgets the initial
  /// weights quickly, as TensorFlow's does with num_updates.
  bool warm_up = false;
  int64_t every_steps = 1;  ///< steps between two updates
  /// Averages floating-point buffers too, such as BatchNorm's running statistics. If false, the average has
  /// the model's own buffers, as PyTorch's AveragedModel has by default. Other buffers are always copied.
  bool average_buffers = true;
  /// Puts the average into the model at the end of every epoch's training, so that validation and callbacks
  /// such as ModelCheckpoint and EarlyStopping use it. Training continues with the model's own weights.
  bool evaluate = true;
  /// Leaves the average in the model when fit() returns.
  bool keep_at_end = true;
};

/// Averages the parameters over the steps, with exponentially falling weights (Polyak and Juditsky, 1992).
/// The average often generalises better than the last weights.
///
/// The average starts with the weights after the first counted step, as PyTorch's AveragedModel does. It is
/// the same on every replica, bit for bit, takes the memory of the model once more on each device, and one
/// pass over the parameters a step. A fit that BackupAndRestore resumes continues the average exactly. If
/// NanGuard undoes steps and the average is no longer finite, the average starts again with the restored
/// weights.
///
/// Pass it after NanGuard and before ModelCheckpoint. ModelCheckpoint's .pt files then hold the average, too:
/// resume from BackupAndRestore's checkpoints instead.
///
/// Example:
///
///     auto average = std::make_shared<ExponentialMovingAverage>(
///         ExponentialMovingAverageOptions{.decay = 0.999, .warm_up = true});
///     trainer.fit(batches, {.epochs = 90, .validation = test_batches, .callbacks = {average}});
class ExponentialMovingAverage : public Callback {
 public:
  /// Throws InvalidArgument if decay is not at least 0 and below 1, or if every_steps is below 1.
  explicit ExponentialMovingAverage(const ExponentialMovingAverageOptions& options = {});
  ~ExponentialMovingAverage() override;

  void on_fit_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;
  void on_save_point(FitState& state) override;
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "ExponentialMovingAverage"; }

  /// Returns the number of updates.
  int64_t num_updates() const { return num_updates_; }

 private:
  double next_decay() const;
  void look_for_roll_backs(const FitState& state);

  ExponentialMovingAverageOptions options_;
  std::unique_ptr<AveragedWeights> average_;
  int64_t num_updates_ = 0;
  int64_t num_roll_backs_ = 0;
};

}  // namespace lockstep
