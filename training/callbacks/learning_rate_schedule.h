#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Returns the share of the first learning rate that step `step` (from 0) of `num_steps` takes: half a cosine
/// that falls from 1 at step 0 to 0 at step `num_steps` and stays there (Loshchilov and Hutter, "SGDR:
/// Stochastic Gradient Descent with Warm Restarts", 2016, equation 5 without restarts and down to 0).
/// Throws InvalidArgument if `step` is negative or `num_steps` is below 1.
double cosine_decay(int64_t step, int64_t num_steps);

/// Sets the learning rate of every parameter group, from the optimizer's next step on. Replicas stay equal
/// only if each replica's optimizer gets the same rate.
void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

/// Sets the learning rate before every step to `learning_rate` times `share(state)`. If `share` returns
/// nothing, the rate stays as it is. `share` must return the same on all workers.
///
/// Example:
///
///     auto halving = std::make_shared<LearningRateSchedule>(0.1, [](const FitState& state) {
///       return std::optional<double>(std::pow(0.5, state.epoch - 1));
///     });
///     trainer.fit(batches, {.epochs = 5, .callbacks = {halving}});
class LearningRateSchedule : public Callback {
 public:
  using Share = std::function<std::optional<double>(const FitState&)>;
  /// Throws InvalidArgument if the learning rate is not positive.
  LearningRateSchedule(double learning_rate, Share share);
  void on_step_begin(FitState& state) override;

 private:
  double learning_rate_;
  Share share_;
};

struct WarmupOptions {
  /// Steps over which the rate rises linearly from 1/warmup_steps of its value to the whole (Goyal et al.,
  /// "Accurate, Large Minibatch SGD", 2017, section 2.2).
  int64_t warmup_steps = 0;
  /// Steps of the whole schedule. If 0, the steps of the fit, whose steps per epoch must then be known.
  int64_t num_steps = 0;
};

/// Warms up to the whole rate and then leaves it alone, so that ReduceOnPlateau can change it.
std::shared_ptr<LearningRateSchedule> constant_schedule(double learning_rate,
                                                        const WarmupOptions& options = {});
/// Warms up, then decays along half a cosine to 0 at the last step, see cosine_decay().
std::shared_ptr<LearningRateSchedule> cosine_schedule(double learning_rate,
                                                      const WarmupOptions& options = {});

struct StepDecayOptions {
  int64_t epochs = 30;  ///< the rate is multiplied by `factor` each time so many epochs have passed
  double factor = 0.1;
  int64_t warmup_steps = 0;
};
/// Warms up, and multiplies the rate by `factor` after every `epochs` epochs.
std::shared_ptr<LearningRateSchedule> step_schedule(double learning_rate,
                                                    const StepDecayOptions& options = {});

struct ReduceOnPlateauOptions {
  MonitorOptions monitor{};
  double factor = 0.1;
  int64_t patience = 10;  ///< the rate falls after this many epochs in a row without a better value
  int64_t cooldown = 0;   ///< epochs after a change that do not count
  double min_learning_rate = 0;
};

/// Multiplies the learning rate by a factor each time the monitored value stops improving.
///
/// Example:
///
///     auto reduce = std::make_shared<ReduceOnPlateau>(ReduceOnPlateauOptions{.factor = 0.5, .patience = 3});
///     trainer.fit(batches, {.epochs = 90, .validation = test_batches, .callbacks = {reduce}});
class ReduceOnPlateau : public Callback {
 public:
  /// Throws InvalidArgument if the factor is not between 0 and 1 (both excluded), the patience is below 1, or
  /// another option is negative.
  explicit ReduceOnPlateau(const ReduceOnPlateauOptions& options = {});
  void on_fit_begin(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "ReduceOnPlateau"; }

 private:
  ReduceOnPlateauOptions options_;
  Monitor monitor_;
  int64_t epochs_without_ = 0;
  int64_t cooldown_left_ = 0;
};

}  // namespace lockstep
