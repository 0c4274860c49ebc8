#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Writes a line with the logs of every epoch into a CSV file, see CsvLog. Of several workers worker 0 alone
/// does.
class CsvLogger : public Callback {
 public:
  /// `path` must name no file yet when the fit begins: else, and where it cannot be written,
  /// std::system_error names it.
  explicit CsvLogger(std::string path) : path_(std::move(path)) {}
  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override { clock_.begin_epoch(state); }
  void on_epoch_end(FitState& state) override;

 private:
  std::string path_;
  StepRecorder clock_;
  std::optional<CsvLog> log_;
};

struct JsonLinesLoggerOptions {
  std::string path;
  int64_t log_every = 10;  ///< steps between two that are written; 0: epochs alone
};

/// Writes a JSON object for every epoch and some steps, one a line, see JsonLinesLog; its "kind" is "epoch"
/// or "step". Otherwise as CsvLogger.
class JsonLinesLogger : public Callback {
 public:
  /// Throws InvalidArgument for a negative log_every.
  explicit JsonLinesLogger(const JsonLinesLoggerOptions& options);
  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override { steps_.begin_epoch(state); }
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;

 private:
  JsonLinesLoggerOptions options_;
  StepRecorder steps_;
  std::optional<JsonLinesLog> log_;
};

}  // namespace lockstep
