#include "lockstep/training/early_stopping.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "lockstep/runtime/errors.h"

namespace lockstep {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), monitor_("EarlyStopping", options.monitor) {
  if (options.patience < 1) {
    throw InvalidArgument(
        c10::str("[EarlyStopping] expected a patience of 1 or more epochs, but got ", options.patience));
  }
}

void EarlyStopping::on_fit_begin(FitState& state) {
  if (state.global_step > 0) return;  // the run goes on
  monitor_ = Monitor("EarlyStopping", options_.monitor);
  best_epoch_ = epochs_without_ = 0;
  best_.clear();
}

void EarlyStopping::on_epoch_end(FitState& state) {
  if (monitor_.improves(state.logs)) {
    best_epoch_ = state.epoch;
    epochs_without_ = 0;
    if (!options_.restore_best) return;
    const torch::NoGradGuard no_grad;
    best_.clear();
    for (const auto& module : state.objects().modules) {
      auto& copies = best_.emplace_back();
      for (const auto& [name, tensor] : named_state(*module)) copies.push_back(tensor.detach().clone());
    }
  } else if (++epochs_without_ >= options_.patience) {
    state.stop(c10::str(monitor_.name(), " is not better than in epoch ", best_epoch_, " since ",
                        options_.patience, options_.patience == 1 ? " epoch" : " epochs"));
  }
}

void EarlyStopping::on_fit_end(FitState& state) {
  if (best_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (size_t replica = 0; replica < best_.size(); ++replica) {
    const auto tensors = named_state(*state.objects().modules[replica]);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].second.detach().copy_(best_[replica][i]);
  }
  best_.clear();
}

}  // namespace lockstep
