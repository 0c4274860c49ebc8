#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/training/callbacks/monitor.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Sets the learning rate before every step to `learning_rate` times a share, which `share(state)` says from
/// how far the fit is, alike on all workers; nothing leaves the rate as it is.
class LearningRateSchedule : public Callback {
 public:
  using Share = std::function<std::optional<double>(const FitState&)>;
  /// Throws InvalidArgument for a learning rate that is not positive.
  LearningRateSchedule(double learning_rate, Share share);
  void on_step_begin(FitState& state) override;

 private:
  double learning_rate_;
  Share share_;
};

struct WarmupOptions {
  /// Steps over which the rate rises from 1/n of itself to the whole (Goyal et al., "Accurate, Large
  /// Minibatch SGD", 2017, section 2.2).
  int64_t warmup_steps = 0;
  /// Steps of the whole schedule; 0: of the fit, whose steps an epoch must be known then.
  int64_t num_steps = 0;
};

/// A warm-up to the whole rate, which then stays, or goes where ReduceOnPlateau brings it.
std::shared_ptr<LearningRateSchedule> constant_schedule(double learning_rate,
                                                        const WarmupOptions& options = {});
/// A warm-up, then half a cosine down to 0 at the last step, see cosine_decay().
std::shared_ptr<LearningRateSchedule> cosine_schedule(double learning_rate,
                                                      const WarmupOptions& options = {});

struct StepDecayOptions {
  int64_t epochs = 30;  ///< after so many the rate is multiplied by `factor`, again and again
  double factor = 0.1;
  int64_t warmup_steps = 0;
};
std::shared_ptr<LearningRateSchedule> step_schedule(double learning_rate,
                                                    const StepDecayOptions& options = {});

struct ReduceOnPlateauOptions {
  MonitorOptions monitor{};
  double factor = 0.1;
  int64_t patience = 10;  ///< epochs in a row without a better value before the rate falls
  int64_t cooldown = 0;   ///< epochs after that which do not count
  double min_learning_rate = 0;
};

/// Multiplies the learning rate by a factor each time the monitored value no longer gets better.
class ReduceOnPlateau : public Callback {
 public:
  /// Throws InvalidArgument for a factor that is not between 0 and 1, a patience below 1, and negative
  /// values.
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
