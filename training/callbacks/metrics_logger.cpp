#include "lockstep/training/callbacks/metrics_logger.h"

#include <system_error>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Opens a log, and tells the way out if its file exists.
template <typename Log>
void open_new(std::optional<Log>& log, const std::string& path, const std::string& who) {
  try {
    log.emplace(path);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::file_exists) throw;
    throw std::system_error(error.code(), "[" + who + "] expected the name of a new file, but got '" + path +
                                              "'; for a fit that resumes, use RecordRun");
  }
}

}  // namespace

void CsvLogger::on_fit_begin(FitState& state) {
  if (state.is_chief()) open_new(log_, path_, "CsvLogger");
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
  if (state.is_chief()) open_new(log_, options_.path, "JsonLinesLogger");
}

void JsonLinesLogger::on_step_end(FitState& state) {
  if (log_ && options_.log_every > 0 && state.global_step % options_.log_every == 0)
    log_->write(with_kind("step", metric_row(steps_.next(state))));
}

void JsonLinesLogger::on_epoch_end(FitState& state) {
  if (log_) log_->write(with_kind("epoch", metric_row(epoch_record(state, steps_.seconds()))));
}

}  // namespace lockstep
