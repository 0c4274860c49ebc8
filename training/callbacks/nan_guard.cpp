#include "lockstep/training/callbacks/nan_guard.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/training/callbacks/internal/finite_states.h"

namespace lockstep {

NanGuard::NanGuard(const NanGuardOptions& options) : options_(options) {
  if (options.every_steps < 0) {
    throw InvalidArgument(
        c10::str("[NanGuard] expected every_steps of 0 or more, but got ", options.every_steps));
  }
  if (options.max_consecutive < 1) {
    throw InvalidArgument(
        c10::str("[NanGuard] expected max_consecutive of 1 or more, but got ", options.max_consecutive));
  }
  if (options_.action == NotFiniteAction::kSkip) options_.every_steps = 1;
}

void NanGuard::on_fit_begin(FitState& state) {
  num_consecutive_ = num_undone_ = 0;
  if (options_.action == NotFiniteAction::kStop) return;
  state.check_resumable();
  if (state.on_not_finite) throw InvalidArgument("[NanGuard] expected one that undoes steps, but got two");
  state.on_not_finite = [this, &state](const NotFinite& error) { return undo(state, error); };
}

void NanGuard::on_epoch_begin(FitState& state) {
  if (options_.action != NotFiniteAction::kStop) keep(state);
}

void NanGuard::on_step_end(FitState& state) {
  if (options_.every_steps == 0 || state.step % options_.every_steps != 0) return;
  if (look(state) && options_.action != NotFiniteAction::kStop) keep(state);
}

void NanGuard::on_epoch_trained(FitState& state) {
  look(state);
}

/// Returns whether everything was finite.
bool NanGuard::look(FitState& state) {
  const int64_t undone_before = num_undone_;
  require_finite(state);
  if (num_undone_ > undone_before) return false;
  num_consecutive_ = 0;
  return true;
}

void NanGuard::keep(FitState& state) {
  state.keep_state();
  kept_step_ = state.global_step;
}

bool NanGuard::undo(FitState& state, const NotFinite& error) {
  const int64_t num_steps = state.global_step - kept_step_;
  // If no step was made since, the kept state itself is not finite.
  if (num_steps == 0 || num_consecutive_ == options_.max_consecutive) return false;
  ++num_consecutive_;
  num_undone_ += num_steps;
  state.roll_back();
  kept_step_ = state.global_step;
  if (!state.is_chief()) return true;
  const std::string message =
      c10::str(error.what(), num_steps == 1 ? ": the step is undone"
                                            : c10::str(": the last ", num_steps, " steps are undone"));
  if (options_.on_message) {
    options_.on_message(message);
  } else {
    write_error_line(message);
  }
  return true;
}

}  // namespace lockstep
