#include "lockstep/training/backup_and_restore.h"

#include <utility>

#include "lockstep/strategies/strategy.h"
#include "lockstep/training/divergence_check.h"
#include "lockstep/training/nan_guard.h"

namespace lockstep {
void BackupAndRestore::on_fit_begin(FitState& state) {
  state.check_resumable();
  backup_.emplace(state.strategy(), options_);
  const auto& objects = state.objects();
  backup_->state().add_model(objects.modules);
  backup_->state().add_optimizer("optimizer", objects.optimizers);
  if (!objects.scalers.empty()) backup_->state().add_scaler(objects.scalers);
  if (auto found = backup_->restore())
    state.resume_from(std::move(found->progress), std::move(found->more),
                      found->path + "/state.pt: ['more']");
}

void BackupAndRestore::on_save_point(FitState& state) {
  const TrainingProgress progress = state.progress();
  // Now rather than in on_fit_end(), where other callbacks may change the model, such as EarlyStopping.
  const bool ends = state.stop_reason().has_value() || state.epochs_done() == state.epochs;
  const bool is_removed = ends && options_.delete_on_success && !state.is_interrupted();
  if (is_removed || (!ends && !backup_->is_due(progress))) return;
  // What is broken must not take the place of what is not.
  NanGuard::check(state.epoch, state.finite_counts(/*all_workers=*/true));
  check_divergence(state.strategy(), state.global_step, state.objects().modules, state.objects().optimizers);
  if (ends) {
    backup_->save_and_wait(progress, state.resume_state());
  } else {
    backup_->save(progress, state.resume_state());
  }
}

void BackupAndRestore::on_fit_end(FitState& state) {
  if (!state.is_interrupted()) backup_->finish();
  backup_.reset();
}

}  // namespace lockstep
