#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/mlflow/mlflow_run.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct MlflowLoggerOptions {
  /// The folder and names of the run. With an id, the fit continues that run and appends to its metrics, as
  /// MLflow's own client does.
  MlflowRunOptions run;
  std::vector<std::pair<std::string, std::string>> parameters{};
  int64_t log_every = 10;  ///< writes every `log_every`-th step
};

/// Writes a fit for MLflow, see MlflowRun: parameters, the logs of every epoch, and loss, speed and learning
/// rate of some steps as step/loss and so on. Steps are counted over all epochs. Only
/// worker 0 writes.
///
/// The run's status is RUNNING during the fit. At its end, the status becomes FINISHED, or KILLED if the fit
/// was interrupted (see StopOnSignal), or FAILED if this object is destroyed without an end of the fit. A fit
/// that BackupAndRestore resumes continues the run of the earlier process; steps that are trained a second
/// time replace the earlier ones.
///
/// Example:
///
///     auto mlflow = std::make_shared<MlflowLogger>(MlflowLoggerOptions{
///         .run = {.folder = "mlruns", .experiment = "digits"}, .parameters = {{"learning_rate", "0.001"}}});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {mlflow}});
class MlflowLogger : public Callback {
 public:
  /// Throws InvalidArgument if the folder is empty or log_every is below 1.
  explicit MlflowLogger(const MlflowLoggerOptions& options);
  ~MlflowLogger() override;

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  /// Ends the run, unless keep_run() was called.
  void on_fit_end(FitState& state) override;
  StateValue state(FitState& fit) override;
  void restore(FitState& fit, const StateView& saved) override;
  std::string name() const override { return "MlflowLogger"; }

  /// Replaces the parameters. Takes effect when the next run begins, with a fit's first epoch.
  void set_parameters(std::vector<std::pair<std::string, std::string>> parameters) {
    options_.parameters = std::move(parameters);
  }
  /// Makes the fit that has begun continue the run with this id from the fit's step on, as if
  /// BackupAndRestore had resumed it: later steps of that run are removed, since they are trained again. For
  /// loops that you write; call it after on_fit_begin(). Does nothing if `id` is empty.
  void resume(std::string id) { resumed_id_ = std::move(id); }
  /// Makes on_fit_end() leave the run open, for instance to add artifacts; you then call finish().
  void keep_run() { ends_run_ = false; }
  /// Ends the run. A `reason`, if any, becomes the tag stop_reason. Does nothing if there is no open run.
  void finish(RunStatus status, const std::string& reason = "");
  /// Returns the open run; null on other workers, before the first epoch begins, and after the end.
  MlflowRun* run() { return run_ ? &*run_ : nullptr; }

 private:
  MlflowLoggerOptions options_;
  StepRecorder steps_;
  std::optional<MlflowRun> run_;
  std::string resumed_id_;
  bool ends_run_ = true;
};

}  // namespace lockstep
