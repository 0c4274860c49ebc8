#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/training/reporting/records/learning_rate_sweep.h"
#include "lockstep/training/trainer/callback.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {

class StepSnapshot;

struct LearningRateFinderOptions {
  double min_learning_rate = 1e-7;
  double max_learning_rate = 10;
  int64_t steps = 100;  ///< number of learning rates; each trains one batch
  /// Weight of the earlier mean when losses are smoothed; the mean is corrected for its start at 0.
  double smoothing = 0.98;
  /// Stops when the smoothed loss exceeds this many times its lowest value so far. Losses must be positive
  /// for this; a loss that is not finite always stops.
  double divergence = 4;
};

/// Callback of find_learning_rate(): raises the learning rate at every step and notes the loss.
/// restore_all() puts everything back.
///
/// Example:
///
///     auto finder = std::make_shared<LearningRateFinder>(LearningRateFinderOptions{.steps = 50});
///     trainer.fit(batches, {.steps_per_epoch = 50, .callbacks = {finder}});
///     finder->restore_all();
///     const LearningRateSweep sweep = finder->sweep();
class LearningRateFinder : public Callback {
 public:
  /// Throws InvalidArgument if the rates are not positive and ascending, if steps is below 2, or if another
  /// option is out of range.
  explicit LearningRateFinder(const LearningRateFinderOptions& options);
  ~LearningRateFinder() override;

  void on_fit_begin(FitState& state) override;
  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;

  /// Puts back the models, optimizers with their learning rates, scalers and random streams of all local
  /// replicas, as they were when the fit began.
  void restore_all();
  /// Returns the sweep with its suggestion.
  LearningRateSweep sweep() const;

 private:
  struct Kept;

  LearningRateFinderOptions options_;
  LearningRateSweep sweep_;
  double mean_ = 0;  // of the losses, not corrected yet
  double lowest_ = 0;
  std::pair<double, double> seen_;  // local_loss() after the last step
  std::unique_ptr<Kept> kept_;
};

/// Trains some steps, each with a higher learning rate than the one before, and returns the losses with a
/// suggestion for the learning rate: the one at which the loss falls fastest (Smith, "Cyclical Learning Rates
/// for Training Neural Networks", 2017, section 3.3). Then it restores the models, optimizers, scalers,
/// random streams and the position in the dataset exactly, also if an error ends it.
///
/// The losses are means over all workers. Blocks until all steps are made or the loss diverges. A collective.
/// Throws InvalidArgument if an option is out of range, and the errors of Trainer::fit().
///
/// Example:
///
///     const auto sweep = find_learning_rate(trainer, batches);
///     write_learning_rate_plot(sweep, "learning_rate.html");
///     if (sweep.suggestion) std::cout << *sweep.suggestion << '\n';
template <typename Model, typename Batch>
LearningRateSweep find_learning_rate(Trainer<Model, Batch>& trainer, DistributedDataset<Batch>& batches,
                                     const LearningRateFinderOptions& options = {}) {
  const auto finder = std::make_shared<LearningRateFinder>(options);
  const DatasetPosition position = batches.position();
  const auto put_back = [&] {
    finder->restore_all();
    batches.restore(position);
  };
  try {
    trainer.fit(batches, {.steps_per_epoch = options.steps, .callbacks = {finder}});
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return finder->sweep();
}

}  // namespace lockstep
