#include "lockstep/training/callbacks/learning_rate_schedule.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/callbacks/internal/monitor_check.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {
namespace {

void check_least(const char* who, const char* what, int64_t value, int64_t least) {
  if (value < least)
    throw InvalidArgument(
        c10::str("[", who, "] expected ", what, " of ", least, " or more, but got ", value));
}

double warmup(int64_t step, int64_t warmup_steps) {
  return step < warmup_steps ? static_cast<double>(step + 1) / static_cast<double>(warmup_steps) : 1;
}

}  // namespace

double cosine_decay(int64_t step, int64_t num_steps) {
  if (step < 0)
    throw InvalidArgument("[cosine_decay] expected a step from 0, but got " + std::to_string(step));
  if (num_steps < 1) {
    throw InvalidArgument("[cosine_decay] expected 1 step or more in all, but got " +
                          std::to_string(num_steps));
  }
  if (step >= num_steps) return 0;
  const double done = static_cast<double>(step) / static_cast<double>(num_steps);
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

LearningRateSchedule::LearningRateSchedule(double learning_rate, Share share)
    : learning_rate_(learning_rate), share_(std::move(share)) {
  if (!(learning_rate > 0)) {
    throw InvalidArgument(
        c10::str("[LearningRateSchedule] expected a learning rate above 0, but got ", learning_rate));
  }
}

void LearningRateSchedule::on_step_begin(FitState& state) {
  if (const auto share = share_(state)) state.set_learning_rate(learning_rate_ * *share);
}

std::shared_ptr<LearningRateSchedule> constant_schedule(double learning_rate, const WarmupOptions& options) {
  check_least("constant_schedule", "warmup_steps", options.warmup_steps, 0);
  return std::make_shared<LearningRateSchedule>(learning_rate,
                                                [options](const FitState& state) -> std::optional<double> {
                                                  const int64_t step = state.global_step;
                                                  if (step > options.warmup_steps) return std::nullopt;
                                                  return warmup(step, options.warmup_steps);
                                                });
}

std::shared_ptr<LearningRateSchedule> cosine_schedule(double learning_rate, const WarmupOptions& options) {
  check_least("cosine_schedule", "warmup_steps", options.warmup_steps, 0);
  check_least("cosine_schedule", "num_steps", options.num_steps, 0);
  return std::make_shared<
      LearningRateSchedule>(learning_rate, [options](const FitState& state) -> std::optional<double> {
    if (options.num_steps == 0 && !state.steps_per_epoch) {
      throw InvalidArgument(
          "[cosine_schedule] expected num_steps or steps_per_epoch for a dataset whose end is not known, but "
          "got "
          "neither");
    }
    const int64_t num_steps =
        options.num_steps != 0 ? options.num_steps : state.epochs * *state.steps_per_epoch;
    const int64_t step = state.global_step;
    if (step < options.warmup_steps) return warmup(step, options.warmup_steps);
    return cosine_decay(step - options.warmup_steps, std::max<int64_t>(num_steps - options.warmup_steps, 1));
  });
}

std::shared_ptr<LearningRateSchedule> step_schedule(double learning_rate, const StepDecayOptions& options) {
  check_least("step_schedule", "epochs", options.epochs, 1);
  check_least("step_schedule", "warmup_steps", options.warmup_steps, 0);
  if (!(options.factor > 0))
    throw InvalidArgument(c10::str("[step_schedule] expected a factor above 0, but got ", options.factor));
  return std::make_shared<LearningRateSchedule>(
      learning_rate, [options](const FitState& state) -> std::optional<double> {
        const auto decays = static_cast<double>((state.epoch - 1) / options.epochs);
        return warmup(state.global_step, options.warmup_steps) * std::pow(options.factor, decays);
      });
}

ReduceOnPlateau::ReduceOnPlateau(const ReduceOnPlateauOptions& options)
    : options_(options), monitor_("ReduceOnPlateau", options.monitor) {
  if (!(options.factor > 0 && options.factor < 1)) {
    throw InvalidArgument(
        c10::str("[ReduceOnPlateau] expected a factor between 0 and 1, but got ", options.factor));
  }
  check_least("ReduceOnPlateau", "a patience", options.patience, 1);
  check_least("ReduceOnPlateau", "a cooldown", options.cooldown, 0);
  if (!(options.min_learning_rate >= 0)) {
    throw InvalidArgument(c10::str("[ReduceOnPlateau] expected a min_learning_rate of 0 or more, but got ",
                                   options.min_learning_rate));
  }
}

void ReduceOnPlateau::on_fit_begin(FitState& state) {
  check_monitor(monitor_, state);
  if (state.global_step > 0) return;  // a resumed run
  monitor_ = Monitor("ReduceOnPlateau", options_.monitor);
  epochs_without_ = cooldown_left_ = 0;
}

void ReduceOnPlateau::on_epoch_end(FitState& state) {
  const bool better = monitor_.improves(state.logs);
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    epochs_without_ = 0;
    return;
  }
  epochs_without_ = better ? 0 : epochs_without_ + 1;
  if (epochs_without_ < options_.patience) return;
  state.set_learning_rate(std::max(state.learning_rate() * options_.factor, options_.min_learning_rate));
  epochs_without_ = 0;
  cooldown_left_ = options_.cooldown;
}

StateValue ReduceOnPlateau::state(FitState&) {
  StateValue::Dict state;
  state.add("best", saved_number(monitor_.best()));
  state.add("epochs_without", epochs_without_);
  state.add("cooldown_left", cooldown_left_);
  return state;
}

void ReduceOnPlateau::restore(FitState&, const StateView& saved) {
  monitor_.restore(number_in(saved.at("best")));
  epochs_without_ = saved.at("epochs_without").count();
  cooldown_left_ = saved.at("cooldown_left").count();
}

}  // namespace lockstep
