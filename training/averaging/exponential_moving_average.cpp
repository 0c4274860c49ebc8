#include "lockstep/training/averaging/exponential_moving_average.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/averaging/internal/averaged_weights.h"

namespace lockstep {

ExponentialMovingAverage::ExponentialMovingAverage(const ExponentialMovingAverageOptions& options)
    : options_(options), average_(std::make_unique<AveragedWeights>()) {
  if (!(options.decay >= 0 && options.decay < 1)) {
    throw InvalidArgument(c10::str(
        "[ExponentialMovingAverage] expected a decay of at least 0 and below 1, but got ", options.decay));
  }
  if (options.every_steps < 1) {
    throw InvalidArgument(c10::str("[ExponentialMovingAverage] expected every_steps of 1 or more, but got ",
                                   options.every_steps));
  }
}

ExponentialMovingAverage::~ExponentialMovingAverage() = default;

void ExponentialMovingAverage::on_fit_begin(FitState& state) {
  num_roll_backs_ = 0;
  if (state.global_step > 0) {  // a fit that continues an earlier one
    average_->take_out_of_model(state.objects());
    return;
  }
  average_->clear();
  num_updates_ = 0;
}

double ExponentialMovingAverage::next_decay() const {
  if (!options_.warm_up) return options_.decay;
  const auto n = static_cast<double>(num_updates_);
  return std::min(options_.decay, (1 + n) / (10 + n));
}

/// Forgets the average if steps that have been undone have broken it.
void ExponentialMovingAverage::look_for_roll_backs(const FitState& state) {
  if (state.num_roll_backs == num_roll_backs_) return;
  num_roll_backs_ = state.num_roll_backs;
  if (!average_->is_finite(state.objects())) average_->clear();
}

void ExponentialMovingAverage::on_step_end(FitState& state) {
  look_for_roll_backs(state);
  if (state.global_step % options_.every_steps != 0) return;
  average_->update(state.objects(), 1 - next_decay(),
                   options_.average_buffers ? AveragedBuffers::kAverage : AveragedBuffers::kCopy);
  ++num_updates_;
}

void ExponentialMovingAverage::on_epoch_trained(FitState& state) {
  look_for_roll_backs(state);
  if (options_.evaluate) average_->put_into_model(state.objects());
}

void ExponentialMovingAverage::on_save_point(FitState& state) {
  average_->take_out_of_model(state.objects());
}

void ExponentialMovingAverage::on_fit_end(FitState& state) {
  if (options_.keep_at_end && !state.is_interrupted()) average_->put_into_model(state.objects());
}

StateValue ExponentialMovingAverage::state(FitState& fit) {
  StateValue::Dict state;
  state.add("num_updates", num_updates_);
  // BackupAndRestore saves the model next, which must be the one to train further, whatever the callbacks'
  // order: save() sees to that.
  state.add("average", average_->save(fit.objects()));
  return state;
}

void ExponentialMovingAverage::restore(FitState& fit, const StateView& saved) {
  num_updates_ = saved.at("num_updates").count();
  average_->load(fit.objects(), saved.at("average"));
}

}  // namespace lockstep
