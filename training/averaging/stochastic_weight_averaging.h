#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/training/trainer/callback.h"

namespace lockstep {

class AveragedWeights;

struct StochasticWeightAveragingOptions {
  int64_t start_epoch = 1;   ///< first epoch whose weights count, from 1
  int64_t every_epochs = 1;  ///< epochs between two updates
  /// Learning rate of the first parameter group from start_epoch on; other groups keep their ratio to it. If
  /// empty, the rate is left alone. Izmailov et al. recommend a constant rate that is higher than usual.
  std::optional<double> learning_rate{};
  /// Puts the average into the model after the training of every epoch from start_epoch on, so that
  /// validation and ModelCheckpoint use it. Each time costs a pass over the training data if the model has
  /// BatchNorm. If false, this happens in the last epoch only.
  bool evaluate_every_epoch = false;
};

/// Averages the weights at the ends of epochs, each with the same weight (Izmailov et al., "Averaging Weights
/// Leads to Wider Optima and Better Generalization", 2018). fit() leaves the average in the model.
///
/// BatchNorm's running statistics belong to no weights in the average, so they are computed again whenever
/// the average is used: by a pass over the training data (FitState::update_batch_norm()). The average is the
/// same on every replica, bit for bit. A fit that BackupAndRestore resumes continues it exactly. If another
/// callback stops the fit early, the average is put into the model after the last validation.
///
/// Pass it after learning-rate schedules and before ModelCheckpoint.
///
/// Example:
///
///     auto averaging = std::make_shared<StochasticWeightAveraging>(
///         StochasticWeightAveragingOptions{.start_epoch = 75, .learning_rate = 0.05});
///     trainer.fit(batches, {.epochs = 100, .validation = test_batches, .callbacks = {averaging}});
class StochasticWeightAveraging : public Callback {
 public:
  /// Throws InvalidArgument if start_epoch or every_epochs is below 1, or the learning rate is not positive.
  explicit StochasticWeightAveraging(const StochasticWeightAveragingOptions& options = {});
  ~StochasticWeightAveraging() override;

  /// Throws InvalidArgument if the fit ends before start_epoch.
  void on_fit_begin(FitState& state) override;
  void on_step_begin(FitState& state) override;
  void on_epoch_trained(FitState& state) override;
  void on_save_point(FitState& state) override;
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "StochasticWeightAveraging"; }

  /// Returns the number of epochs in the average.
  int64_t num_averaged() const { return num_averaged_; }

 private:
  bool is_counted(int64_t epoch) const;
  void put_into_model(FitState& state);

  StochasticWeightAveragingOptions options_;
  std::unique_ptr<AveragedWeights> average_;
  int64_t num_averaged_ = 0;
  int64_t last_epoch_ = 0;       // the last epoch in the average
  bool has_statistics_ = false;  // whether its buffers are BatchNorm's statistics of these weights
};

}  // namespace lockstep
