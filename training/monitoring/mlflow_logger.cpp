#include "lockstep/training/monitoring/mlflow_logger.h"

#include <c10/util/StringUtil.h>

#include <exception>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {
namespace {

constexpr const char* kStopReason = "stop_reason";

MlflowStatus mlflow_status(RunStatus status) {
  switch (status) {
    case RunStatus::kCompleted:
    case RunStatus::kStoppedEarly:
      return MlflowStatus::kFinished;
    case RunStatus::kInterrupted:
      return MlflowStatus::kKilled;
    case RunStatus::kFailed:
      break;
  }
  return MlflowStatus::kFailed;
}

}  // namespace

MlflowLogger::MlflowLogger(const MlflowLoggerOptions& options) : options_(options) {
  if (options.run.folder.empty()) throw InvalidArgument("[MlflowLogger] expected a folder, but got none");
  if (options.log_every < 1) {
    throw InvalidArgument(
        c10::str("[MlflowLogger] expected log_every of 1 or more steps, but got ", options.log_every));
  }
}

MlflowLogger::~MlflowLogger() {
  try {
    finish(RunStatus::kFailed);
  } catch (const std::exception&) {  // the run then stays RUNNING: the error that ended the fit counts more
  }
}

void MlflowLogger::on_fit_begin(FitState&) {
  run_.reset();
  resumed_id_.clear();
}

void MlflowLogger::on_epoch_begin(FitState& state) {
  steps_.begin_epoch(state);
  // Not before: only now is it known whether an earlier run is resumed.
  if (!state.is_chief() || run_) return;
  MlflowRunOptions options = options_.run;
  if (!resumed_id_.empty()) options.id = resumed_id_;
  run_.emplace(options);
  if (!resumed_id_.empty()) run_->remove_metrics_after(state.global_step);  // these steps are trained again
  run_->remove_tag(kStopReason);                                            // of the earlier process
  for (const auto& [name, value] : options_.parameters) run_->set_parameter(name, value);
}

void MlflowLogger::on_step_end(FitState& state) {
  if (!run_ || state.global_step % options_.log_every != 0) return;
  for (const auto& [name, value] : metric_row(steps_.next(state))) {
    const auto* number = std::get_if<double>(&value);
    if (number != nullptr) run_->add_metric("step/" + name, *number, {.step = state.global_step});
  }
}

void MlflowLogger::on_epoch_end(FitState& state) {
  if (!run_) return;
  run_->add_metric("epoch", static_cast<double>(state.epoch), {.step = state.global_step});
  for (const auto& [name, value] : state.logs) run_->add_metric(name, value, {.step = state.global_step});
}

void MlflowLogger::on_fit_end(FitState& state) {
  if (!ends_run_) return;
  finish(state.is_interrupted() ? RunStatus::kInterrupted : RunStatus::kCompleted,
         state.stop_reason().value_or(""));
}

void MlflowLogger::finish(RunStatus status, const std::string& reason) {
  if (!run_) return;
  if (!reason.empty()) run_->set_tag(kStopReason, reason);
  run_->end(mlflow_status(status));
  run_.reset();
}

StateValue MlflowLogger::state(FitState&) {
  StateValue::Dict state;
  state.add("run_id", run_ ? run_->id() : resumed_id_);
  return state;
}

void MlflowLogger::restore(FitState&, const StateView& saved) {
  resume(saved.at("run_id").text());
}

}  // namespace lockstep
