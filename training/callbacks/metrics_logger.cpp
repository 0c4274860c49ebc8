#include "lockstep/training/callbacks/metrics_logger.h"

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void CsvLogger::on_fit_begin(FitState& state) {
  if (state.is_chief()) log_.emplace(path_);
}

void CsvLogger::on_epoch_end(FitState& state) {
  if (log_) log_->write(metric_row(epoch_record(state, clock_.seconds())));
}

JsonLinesLogger::JsonLinesLogger(const JsonLinesLoggerOptions& options) : options_(options) {
  if (options.log_every < 0) {
    throw InvalidArgument("[JsonLinesLogger] expected log_every of 0 or more steps, but got " +
                          std::to_string(options.log_every));
  }
}

void JsonLinesLogger::on_fit_begin(FitState& state) {
  if (state.is_chief()) log_.emplace(options_.path);
}

void JsonLinesLogger::on_step_end(FitState& state) {
  if (log_ && options_.log_every > 0 && state.global_step % options_.log_every == 0)
    log_->write(with_kind("step", metric_row(steps_.next(state))));
}

void JsonLinesLogger::on_epoch_end(FitState& state) {
  if (log_) log_->write(with_kind("epoch", metric_row(epoch_record(state, steps_.seconds()))));
}

}  // namespace lockstep
