#include "lockstep/training/callbacks/backup_and_restore.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/callbacks/internal/finite_states.h"
#include "lockstep/training/callbacks/internal/monitor_check.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {

BackupAndRestore::BackupAndRestore(const BackupOptions& options, const std::optional<MonitorOptions>& best)
    : options_(options) {
  if (best) best_.emplace("BackupAndRestore", *best);
}

StateValue BackupAndRestore::state(FitState&) {
  if (!best_) return {};
  StateValue::Dict state;
  state.add("value", saved_number(best_->best()));
  state.add("step", best_step_);
  return state;
}

void BackupAndRestore::restore(FitState&, const StateView& saved) {
  if (!best_) return;
  best_->restore(number_in(saved.at("value")));
  best_step_ = saved.at("step").integer();
}

/// Returns whether an epoch has just ended and is the best so far.
bool BackupAndRestore::has_improved(const FitState& state) {
  if (!best_ || state.epochs_done() == epochs_seen_) return false;
  epochs_seen_ = state.epochs_done();
  if (!best_->improves(state.logs)) return false;
  best_step_ = state.global_step;
  return true;
}

/// Returns whether the fit that was resumed had nothing left to do.
bool BackupAndRestore::had_finished(const FitState& state) const {
  if (!resumed_ || state.is_interrupted()) return false;
  const bool ends = state.epochs_done() == state.epochs || state.stop_reason();
  return ends && state.global_step == resumed_->step && state.epochs_done() == resumed_->epochs;
}

void BackupAndRestore::on_fit_begin(FitState& state) {
  if (best_) check_monitor(*best_, state);
  state.check_resumable();
  backup_.emplace(state.strategy(), options_);
  const auto& objects = state.objects();
  backup_->state().add_model(objects.modules);
  backup_->state().add_optimizer("optimizer", objects.optimizers);
  if (!objects.scalers.empty()) backup_->state().add_scaler(objects.scalers);
  epochs_seen_ = state.epochs_done();
  best_step_ = -1;
  resumed_.reset();
  if (best_ && state.global_step == 0) best_->restore(std::nullopt);
  if (auto found = backup_->restore()) {
    epochs_seen_ = found->progress.epoch;
    resumed_ = {.epochs = found->progress.epoch, .step = found->progress.step};
    state.resume_from(std::move(found->progress), std::move(found->more),
                      found->path + "/state.pt: ['more']");
  }
}

void BackupAndRestore::on_test_step_end(FitState&) {
  backup_->commit_written();
}

void BackupAndRestore::on_save_point(FitState& state) {
  backup_->commit_written();
  // Saves now rather than in on_fit_end(), where other callbacks, such as EarlyStopping, may change the
  // model.
  const bool ends = state.stop_reason().has_value() || state.epochs_done() == state.epochs;
  const bool is_removed = ends && options_.delete_on_success && !state.is_interrupted();
  const bool is_best = has_improved(state);
  const bool is_best_step = state.global_step == best_step_;  // the best step may be saved a second time
  // is_due() is a collective if checkpoints are timed in minutes: all workers call it or none does.
  if (is_removed || (!ends && !is_best && !backup_->is_due(state.progress()))) return;
  // A broken state must not replace a sound one.
  check_equal(require_finite(state), state.global_step);
  if (ends) {
    backup_->save_and_wait(state.progress(), state.resume_state(), is_best_step);
  } else {
    backup_->save(state.progress(), state.resume_state(), is_best_step);
  }
}

void BackupAndRestore::say_finished(const FitState& state) const {
  std::string text =
      c10::str("this run had already finished: epoch ", state.epochs_done(), " of ", state.epochs);
  if (state.epochs_done() < state.epochs) {
    text += ", as it stopped early: " + *state.stop_reason() +
            "; to train on, give the callback that stopped it another limit";
  } else {
    text += "; to train on, raise FitOptions::epochs";
  }
  write_error_line(text + "; to train anew, name another folder than " + options_.folder);
}

void BackupAndRestore::on_fit_end(FitState& state) {
  if (had_finished(state) && state.is_chief() && !options_.on_message) say_finished(state);
  if (!state.is_interrupted()) backup_->finish();
  backup_.reset();
}

}  // namespace lockstep
