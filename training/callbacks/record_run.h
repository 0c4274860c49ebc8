#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/callbacks/tensorboard.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct RecordRunOptions {
  std::string title = "Training";
  std::vector<ConfigurationEntry> configuration{};  ///< for the report
  std::vector<Hyperparameter> hyperparameters{};    ///< for TensorBoard's HPARAMS tab
  int64_t log_every = 10;                           ///< steps between two that are recorded
  /// Writes a histogram of every parameter after each epoch.
  bool histograms = true;
  /// The metric that is a confusion matrix of the validation, where there is one.
  std::string confusion = "validation_confusion";
  /// Of the confusion matrix; empty: their numbers.
  std::vector<std::string> class_names{};
};

/// Records a fit in a run directory: metrics.csv (an epoch a line), metrics.jsonl (steps, epochs, the end),
/// event files for TensorBoard in tb/train and tb/validation, and report.html at its end. Of several workers
/// worker 0 alone writes.
///
/// A recorded step's loss is the mean over the steps since the last recorded one, of worker 0's replicas;
/// reading it waits for the devices. Files that cannot be written end the fit by std::system_error naming
/// them.
class RecordRun : public Callback {
 public:
  /// `paths` are those of a RunDirectory that outlives it. Throws InvalidArgument for a log_every below 1.
  RecordRun(const RunPaths& paths, const RecordRunOptions& options = {});

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

  /// Some of the validation's images that were misclassified, for the report and TensorBoard.
  void set_misclassified(std::vector<MisclassifiedImage> images, int64_t num_all);
  /// Closes metrics.jsonl and the session of TensorBoard, and writes the report. After fit(), or where an
  /// error has ended it: `status` and `reason` say how. Writes nothing in workers other than the first.
  void finish(RunStatus status, const std::string& reason = "");

  const RunRecord& record() const { return record_; }

 private:
  void write_epoch(const EpochRecord& epoch);

  RunPaths paths_;
  RecordRunOptions options_;
  RunRecord record_;
  std::optional<CsvLog> csv_;
  std::optional<JsonLinesLog> json_lines_;
  TensorBoard tensorboard_;
  StepRecorder steps_;
  std::chrono::steady_clock::time_point fit_began_;
};

}  // namespace lockstep
