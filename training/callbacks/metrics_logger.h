#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Writes the logs of every epoch as a line of a CSV file, see CsvLog. Only worker 0 writes.
///
/// Example:
///
///     trainer.fit(batches, {.epochs = 5, .callbacks = {std::make_shared<CsvLogger>("metrics.csv")}});
class CsvLogger : public Callback {
 public:
  /// The file must not exist when the fit begins. The fit throws std::system_error naming it if it exists or
  /// cannot be written.
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
  int64_t log_every = 10;  ///< writes every `log_every`-th step; 0: epochs only
};

/// Writes a JSON object for every epoch and for some steps, one per line, see JsonLinesLog. Its "kind" is
/// "epoch" or "step". Only worker 0 writes; the file must be new, as for CsvLogger.
///
/// Example:
///
///     auto log = std::make_shared<JsonLinesLogger>(JsonLinesLoggerOptions{.path = "metrics.jsonl"});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {log}});
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
