#include "lockstep/apps/train_images/training/training_callbacks.h"

#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/apps/shared/session/guard_callbacks.h"
#include "lockstep/training/averaging/exponential_moving_average.h"
#include "lockstep/training/averaging/stochastic_weight_averaging.h"
#include "lockstep/training/callbacks/learning_rate_schedule.h"

namespace lockstep::apps {
namespace {

void add_schedule(const TrainOptions& options, const TrainPlan& plan, Callbacks& callbacks) {
  const auto warmup_steps =
      static_cast<int64_t>(std::llround(options.warmup_epochs * static_cast<double>(plan.steps_per_epoch)));
  const double rate = plan.learning_rate;
  switch (options.schedule) {
    case ScheduleKind::kCosine:
      callbacks.push_back(cosine_schedule(rate, {.warmup_steps = warmup_steps, .num_steps = plan.num_steps}));
      return;
    case ScheduleKind::kStep:
      callbacks.push_back(step_schedule(rate, {.epochs = options.schedule_step_epochs,
                                               .factor = options.schedule_factor,
                                               .warmup_steps = warmup_steps}));
      return;
    case ScheduleKind::kReduceOnPlateau:
      callbacks.push_back(std::make_shared<ReduceOnPlateau>(ReduceOnPlateauOptions{
          .factor = options.schedule_factor, .patience = options.schedule_step_epochs}));
      break;
    case ScheduleKind::kConstant:
      break;
  }
  callbacks.push_back(constant_schedule(rate, {.warmup_steps = warmup_steps}));
}

void add_averaging(const TrainOptions& options, Callbacks& callbacks) {
  if (options.ema > 0) {
    // Few steps are enough for a small data set, and an average must forget the initial weights by then.
    callbacks.push_back(std::make_shared<ExponentialMovingAverage>(
        ExponentialMovingAverageOptions{.decay = options.ema, .warm_up = true}));
  }
  if (options.swa_start > 0) {
    StochasticWeightAveragingOptions averaging{.start_epoch = options.swa_start};
    if (options.swa_learning_rate > 0) averaging.learning_rate = options.swa_learning_rate;
    callbacks.push_back(std::make_shared<StochasticWeightAveraging>(averaging));
  }
}

}  // namespace

Callbacks training_callbacks(const TrainOptions& options, const TrainPlan& plan,
                             const std::optional<RunPaths>& paths,
                             std::function<void(const std::string&)> log) {
  Callbacks callbacks = guard_callbacks(options, std::move(log));
  add_schedule(options, plan, callbacks);
  add_averaging(options, callbacks);
  add_outcome_callbacks(options, options.early_stopping, paths, callbacks);
  return callbacks;
}

ShowProgressOptions progress_options() {
  return {.text = {.unit = "images",
                   .validation = "test",
                   .names = {"loss", "accuracy", "validation_accuracy", "examples_per_second"}},
          .bar_names = {"loss", "accuracy"},
          .interruption = false};  // the program says so itself
}

}  // namespace lockstep::apps
