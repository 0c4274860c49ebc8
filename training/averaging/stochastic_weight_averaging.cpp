#include "lockstep/training/averaging/stochastic_weight_averaging.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/averaging/internal/averaged_weights.h"

namespace lockstep {

StochasticWeightAveraging::StochasticWeightAveraging(const StochasticWeightAveragingOptions& options)
    : options_(options), average_(std::make_unique<AveragedWeights>()) {
  const auto check = [](const char* what, int64_t value) {
    if (value < 1) {
      throw InvalidArgument(
          c10::str("[StochasticWeightAveraging] expected ", what, " of 1 or more, but got ", value));
    }
  };
  check("start_epoch", options.start_epoch);
  check("every_epochs", options.every_epochs);
  if (options.learning_rate && !(*options.learning_rate > 0)) {
    throw InvalidArgument(c10::str("[StochasticWeightAveraging] expected a positive learning rate, but got ",
                                   *options.learning_rate));
  }
}

StochasticWeightAveraging::~StochasticWeightAveraging() = default;

bool StochasticWeightAveraging::is_counted(int64_t epoch) const {
  return epoch >= options_.start_epoch && (epoch - options_.start_epoch) % options_.every_epochs == 0;
}

void StochasticWeightAveraging::on_fit_begin(FitState& state) {
  if (state.epochs < options_.start_epoch) {
    throw InvalidArgument(c10::str("[StochasticWeightAveraging] expected a start_epoch of at most the fit's ",
                                   state.epochs, " epochs, but got ", options_.start_epoch));
  }
  if (state.global_step > 0) {  // a fit that continues an earlier one
    average_->take_out_of_model(state.objects());
    return;
  }
  average_->clear();
  num_averaged_ = last_epoch_ = 0;
  has_statistics_ = false;
}

void StochasticWeightAveraging::on_step_begin(FitState& state) {
  if (options_.learning_rate && state.epoch >= options_.start_epoch)
    state.set_learning_rate(*options_.learning_rate);
}

void StochasticWeightAveraging::on_epoch_trained(FitState& state) {
  // An epoch that was saved during its validation is trained once, but comes here twice.
  if (is_counted(state.epoch) && last_epoch_ != state.epoch) {
    average_->update(state.objects(), 1 / static_cast<double>(num_averaged_ + 1), AveragedBuffers::kCopy);
    ++num_averaged_;
    last_epoch_ = state.epoch;
    has_statistics_ = false;
  }
  if (options_.evaluate_every_epoch || state.epoch == state.epochs) put_into_model(state);
}

void StochasticWeightAveraging::on_save_point(FitState& state) {
  average_->take_out_of_model(state.objects());
}

void StochasticWeightAveraging::on_fit_end(FitState& state) {
  if (!state.is_interrupted()) put_into_model(state);
}

void StochasticWeightAveraging::put_into_model(FitState& state) {
  if (!average_->put_into_model(state.objects())) return;
  if (!has_statistics_) state.update_batch_norm();
  has_statistics_ = true;
}

StateValue StochasticWeightAveraging::state(FitState& fit) {
  StateValue::Dict state;
  state.add("num_averaged", num_averaged_);
  state.add("last_epoch", last_epoch_);
  state.add("has_statistics", has_statistics_);
  // BackupAndRestore saves the model next, which must be the one to train further, whatever the callbacks'
  // order: save() sees to that.
  state.add("average", average_->save(fit.objects()));
  return state;
}

void StochasticWeightAveraging::restore(FitState& fit, const StateView& saved) {
  num_averaged_ = saved.at("num_averaged").count();
  last_epoch_ = saved.at("last_epoch").count();
  has_statistics_ = saved.at("has_statistics").truth();
  average_->load(fit.objects(), saved.at("average"));
}

}  // namespace lockstep
