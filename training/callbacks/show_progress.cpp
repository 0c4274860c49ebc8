#include "lockstep/training/callbacks/show_progress.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep {
namespace {

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string epoch_label(const FitState& state) {
  return "epoch " + std::to_string(state.epoch) + "/" + std::to_string(state.epochs);
}

}  // namespace

ShowProgress::ShowProgress(const ShowProgressOptions& options)
    : ShowProgress(std::cerr, std::cout, display_of_stderr(), options) {}

ShowProgress::ShowProgress(std::ostream& bar, std::ostream& lines, DisplayOptions display,
                           const ShowProgressOptions& options)
    : lines_(lines), options_(options), display_(bar, std::move(display)) {}

void ShowProgress::on_fit_begin(FitState&) {
  has_trained_ = has_ended_epoch_ = false;
}

Logs ShowProgress::shown_values(const FitState& state) const {
  const auto all = state.local_logs();
  Logs shown;
  if (options_.bar_names.empty()) shown = all;
  for (const auto& name : options_.bar_names) {
    if (const auto value = all.find(name)) shown.set(name, *value);
  }
  if (options_.add_values) options_.add_values(state, shown);
  return shown;
}

void ShowProgress::on_step_end(FitState& state) {
  has_trained_ = true;
  if (!state.is_chief() || !display_.is_due()) return;
  display_.show({.label = epoch_label(state),
                 .step = state.step,
                 .steps = state.steps_per_epoch.value_or(0),
                 .seconds = state.seconds,
                 .examples = state.examples * options_.text.units_per_example,
                 .values = shown_values(state),
                 .unit = options_.text.unit});
}

void ShowProgress::on_test_begin(FitState&) {
  test_began_ = steady_now();
}

void ShowProgress::on_test_step_end(FitState& state) {
  if (!state.is_chief() || !display_.is_due()) return;
  display_.show({.label = epoch_label(state) + " " + options_.text.validation,
                 .step = state.test_step,
                 .steps = state.test_steps.value_or(0),
                 .seconds = steady_now() - test_began_,
                 .examples = state.test_examples * options_.text.units_per_example,
                 .unit = options_.text.unit});
}

void ShowProgress::on_epoch_end(FitState& state) {
  if (!state.is_chief()) return;
  display_.clear();
  has_ended_epoch_ = true;
  lines_ << printable_lines(epoch_line(state.epoch, state.epochs, state.logs, options_.text)) << std::endl;
}

void ShowProgress::on_fit_end(FitState& state) {
  if (!state.is_chief()) return;
  display_.clear();
  if (options_.table && has_ended_epoch_) {
    const auto epochs = state.finished_epochs();
    const int64_t first_epoch = state.epochs_done() - static_cast<int64_t>(epochs.size()) + 1;
    // A restored run's names and reasons are those of its checkpoint.
    lines_ << '\n' << printable_lines(fit_table(first_epoch, epochs, options_.text)) << std::flush;
  }
  if (!state.stop_reason() || !has_trained_) return;
  const std::string reason = printable_lines(*state.stop_reason());
  if (state.is_interrupted()) {
    if (options_.interruption)
      lines_ << "interrupted in " << epoch_label(state) << " after step " << state.global_step << ": "
             << reason << std::endl;
  } else if (state.epochs_done() < state.epochs) {
    lines_ << "stopped early: " << reason << std::endl;
  }
}

}  // namespace lockstep
