#pragma once

#include <torch/nn/module.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/callbacks/stop_on_signal.h"
#include "lockstep/training/monitoring/mlflow_logger.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"
#include "lockstep/training/reporting/records/learning_rate_sweep.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Tasks of this worker besides training.
struct WorkerRole {
  bool is_chief = false;                ///< whether this is worker 0 or the only worker
  bool is_silent = false;               ///< whether to print only errors
  bool is_recorded = false;             ///< whether worker 0 records the run; the same on all workers
  bool is_saved = false;                ///< whether the training is saved; the same on all workers
  std::vector<std::string> hosts = {};  ///< hosts of all workers if the run is recorded
};

/// A training whose data is loaded and whose values are resolved. The references must outlive the session.
struct PreparedRun {
  Strategy& strategy;
  InterruptionGuard& interruption;
  const ImageData& data;
  const std::map<std::string, Origin>& origins;
  const std::string& resume;  ///< command that resumes the training
  WorkerRole role;
  std::optional<RunPaths> paths;                ///< where this worker records the run; none if it does not
  std::shared_ptr<TrainingMetrics> metrics;     ///< null: not served
  std::chrono::steady_clock::time_point began;  ///< when the program began
  ResolvedRun resolved;
};

/// Trains once, and prints, records and saves along the way. Not thread-safe: use it from one thread.
class TrainingSession {
 public:
  /// Creates the callbacks. Throws what they throw, and UsageError if LOCKSTEP_FAULTS cannot be parsed.
  explicit TrainingSession(PreparedRun run);
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  /// Blocks until the training ends. Throws Stopped if a signal ends it, NumbersError if a value is not
  /// finite, and what the strategy and the datasets throw. The record says how the training ended.
  void run();

 private:
  void add_callbacks();
  /// Trains, and ends the record unless an error ends the training.
  void train_and_finish();
  History train_model();
  /// Writes and prints the values of the run once the model exists.
  void on_start(torch::nn::Module& model);
  /// Tells which settings have changed since the checkpoint that the training resumes from.
  void on_resume(const std::string& earlier_configuration);
  /// Writes the configuration to the run directory and for MLflow.
  void record_configuration();
  std::string already_finished(const History& history) const;
  /// Prints the result of --find-learning-rate, and draws it in the run directory.
  void on_sweep(const LearningRateSweep& sweep);
  /// Ends the records of a training that an error ended.
  void fail_records(RunStatus status, const std::string& reason);
  std::string configuration() const;
  /// Logs that a signal stopped the training, and throws Stopped.
  [[noreturn]] void stop(int signal);

  PreparedRun run_;
  int64_t epoch_ = 1;  // current epoch
  bool has_resumed_ = false;
  std::ostream no_lines_;  // writes nothing
  std::shared_ptr<ShowProgress> progress_;
  std::function<void(const std::string&)> log_;
  Callbacks callbacks_;
  std::shared_ptr<RecordRun> record_;     // null: this worker does not record
  std::shared_ptr<MlflowLogger> mlflow_;  // null: as above
  std::shared_ptr<StopOnSignal> stopper_;
};

}  // namespace lockstep::apps
