#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/shared/monitoring/input_profile.h"
#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/apps/shared/session/worker_role.h"
#include "lockstep/strategies/input/input_times.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/callbacks/stop_on_signal.h"
#include "lockstep/training/monitoring/mlflow_logger.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// The setting that all kinds of training share. The references must outlive the session.
struct SessionSetting {
  std::string program;
  InterruptionGuard& interruption;
  std::string resume;  ///< command that resumes the training
  WorkerRole role;
  std::optional<RunPaths> paths;             ///< where this worker records the run; none if it does not
  std::shared_ptr<TrainingMetrics> metrics;  ///< null: not served
  ShowProgressOptions progress;
};

/// Trains once by a Trainer, and prints, records and saves along the way. Programs derive from it. Not
/// thread-safe: use it from one thread.
class TrainingSession {
 public:
  explicit TrainingSession(SessionSetting setting);
  virtual ~TrainingSession() = default;
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  /// Blocks until the training ends. Throws Stopped if a signal ends it, NumbersError if a value is not
  /// finite, UsageError if LOCKSTEP_FAULTS cannot be parsed, and what the strategy and the datasets throw.
  /// The record says how the training ended.
  void run();

 protected:
  using Log = std::function<void(const std::string&)>;

  /// Return what the program was asked for. The choice must live as long as the session.
  virtual const RunChoice& choice() const = 0;
  virtual int64_t epochs() const = 0;
  /// Returns the flag that makes a finished training longer, such as `--epochs`.
  virtual std::string flag_of_length() const { return "--epochs"; }
  /// Returns what the examples are called.
  virtual std::string name_of_examples() const { return "examples"; }
  virtual FlagTable flags() const = 0;
  virtual std::vector<Setting> settings() const = 0;
  virtual std::vector<Setting> resolved_settings() const = 0;
  /// Returns the config.json of the run.
  virtual std::string configuration() const = 0;
  /// Receives the settings that have changed since the checkpoint that the training resumes from.
  virtual void set_changed_settings(std::vector<std::string> changes) = 0;
  /// Returns the error for a loss or tensor that is not finite.
  virtual NumbersError not_finite(const NotFinite::Place& place) const = 0;

  /// Creates the callbacks that make up the training, and the recorder of its run.
  virtual Callbacks make_callbacks(const Log& log) = 0;
  virtual std::shared_ptr<RecordRun> make_record(const RunPaths& paths) = 0;
  virtual History train(const Callbacks& callbacks) = 0;

  /// Writes the configuration to the run directory and for MLflow. Call it once the model exists.
  void record_configuration();
  const WorkerRole& role() const { return setting_.role; }
  const std::optional<RunPaths>& paths() const { return setting_.paths; }
  /// Null if this worker does not record.
  const std::shared_ptr<RecordRun>& record() const { return record_; }
  /// Returns whether a signal has stopped the training; the same on all workers.
  bool is_interrupted() const { return stopper_->signal() != 0; }
  /// Returns what receives the times of making batches to train on; null without --profile-input.
  const std::shared_ptr<InputTimes>& input_times() const { return input_times_; }
  /// Writes a line to standard error.
  void log(const std::string& text) const { log_(text); }

 private:
  void add_callbacks();
  /// Trains, and ends the record unless an error ends the training.
  void train_and_finish();
  void on_resume(const std::string& earlier_configuration);
  void print_input_profile() const;
  std::string already_finished(const History& history) const;
  /// Ends the records of a training that an error ended.
  void fail_records(RunStatus status, const std::string& reason);
  /// Logs that a signal stopped the training, and throws Stopped.
  [[noreturn]] void stop(int signal);

  SessionSetting setting_;
  int64_t epoch_ = 1;  // current epoch
  bool has_resumed_ = false;
  std::shared_ptr<InputTimes> input_times_;
  TrainedSteps trained_;   // in whole epochs
  std::ostream no_lines_;  // writes nothing
  std::shared_ptr<ShowProgress> progress_;
  Log log_;
  Callbacks callbacks_;
  std::shared_ptr<RecordRun> record_;     // null: this worker does not record
  std::shared_ptr<MlflowLogger> mlflow_;  // null: as above
  std::shared_ptr<StopOnSignal> stopper_;
};

}  // namespace lockstep::apps
