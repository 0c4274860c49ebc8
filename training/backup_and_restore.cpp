#include "lockstep/training/backup_and_restore.h"

#include <c10/util/StringUtil.h>

#include "lockstep/strategies/strategy.h"
#include "lockstep/training/state_view.h"

namespace lockstep {
namespace {

TrainingProgress progress_of(FitState& state, const StateValue::Dict& fit) {
  // What resume_state() calls the epoch in work is one more than are done.
  const StateValue value(fit);
  const StateView view(value, "fit");
  TrainingProgress progress{.epoch = view.at("epoch").integer() - 1,
                            .step = state.global_step,
                            .dataset_epoch = view.at("dataset_epoch").integer(),
                            .position = view.at("position").integer()};
  for (const auto& [name, value_of] : state.logs) progress.metrics[name] = value_of;
  return progress;
}

}  // namespace

void BackupAndRestore::on_fit_begin(FitState& state) {
  restored_.reset();
  saved_epoch_.reset();
  backup_.emplace(state.strategy(), options_);
  const auto& objects = state.objects();
  backup_->state().add_model(objects.modules);
  backup_->state().add_optimizer("optimizer", objects.optimizers);
  if (!objects.scalers.empty()) backup_->state().add_scaler(objects.scalers);
  if (auto found = backup_->restore()) {
    restored_ = found->progress;
    saved_epoch_ = found->progress.epoch;
    state.resume_from(std::move(found->more), found->path + "/state.pt: ['more']");
  }
}

void BackupAndRestore::on_save_point(FitState& state) {
  const bool ends = state.stop_reason().has_value();
  // How many epochs are done, for what is saved once in so many.
  const TrainingProgress reached{.epoch = state.is_epoch_done() ? state.epoch : state.epoch - 1,
                                 .step = state.global_step};
  if (!ends && !backup_->is_due(reached)) return;
  StateValue::Dict fit = state.resume_state();
  const TrainingProgress progress = progress_of(state, fit);
  saved_epoch_ = progress.epoch;
  if (ends) {
    backup_->save_and_wait(progress, std::move(fit));
  } else {
    backup_->save(progress, std::move(fit));
  }
}

void BackupAndRestore::on_fit_end(FitState& state) {
  // What was saved after the last step has yet to be validated.
  const bool is_saved =
      backup_->settle() && backup_->saved_step() == state.global_step && saved_epoch_ == state.epoch;
  if (!is_saved && !state.is_interrupted() && !options_.delete_on_success) {
    StateValue::Dict fit = state.resume_state();
    const TrainingProgress progress = progress_of(state, fit);
    backup_->save_and_wait(progress, std::move(fit));
  }
  if (!state.is_interrupted()) backup_->finish();
  backup_.reset();
}

}  // namespace lockstep
