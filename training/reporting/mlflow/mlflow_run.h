#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

struct MlflowRunOptions {
  /// Folder of the store, for `mlflow ui --backend-store-uri`. Created if missing; several runs and
  /// experiments share it.
  std::string folder;
  std::string experiment = "Default";
  std::string name{};    ///< shown by MLflow; if empty, it is made from the id
  std::string source{};  ///< program that trains
  /// Id of an earlier run in this experiment to continue: its metrics stay, and new ones are appended. If
  /// there is no such run, a new one gets this id. If empty, the run is new and gets a random id.
  std::string id{};
};

enum class MlflowStatus { kRunning, kFinished, kFailed, kKilled };

/// Writes a run into the folders that MLflow calls a file store, without MLflow: parameters, metrics, tags
/// and artifacts. MLflow's own client and `mlflow ui` read it, also while it grows. MLflow 3.13 and later
/// read file stores only if MLFLOW_ALLOW_FILE_STORE=true is set; `mlflow migrate-filestore` copies one into a
/// database.
///
/// In names, MLflow allows letters, digits and _ - . / and space; other characters become _. A name with a /
/// is shown in a group. No user name is written. When a call returns, its value has been handed to the
/// operating system. Every call throws std::system_error naming a file that cannot be written. Not
/// thread-safe.
///
/// Example:
///
///     MlflowRun run({.folder = "mlruns", .experiment = "digits", .name = "first"});
///     run.set_parameter("learning_rate", "0.001");
///     run.add_metric("loss", 0.25, {.step = 100});
///     run.end(MlflowStatus::kFinished);
class MlflowRun {
 public:
  /// Begins the run, with the status RUNNING. Throws InvalidArgument if the folder or the experiment's name
  /// is empty, or if the id is not letters and digits.
  explicit MlflowRun(const MlflowRunOptions& options);

  const std::string& id() const { return id_; }
  /// Returns the folder of the run: `store/experiment/run`, with the ids of both.
  const std::string& folder() const { return folder_; }

  void set_parameter(const std::string& name, const std::string& value);
  void set_tag(const std::string& name, const std::string& value);
  /// Removes a tag, if there is one.
  void remove_tag(const std::string& name);

  /// Position of a value on MLflow's axes.
  struct Point {
    int64_t step = 0;
    int64_t milliseconds = 0;  ///< since 1970; 0: now
  };
  void add_metric(const std::string& name, double value, const Point& point);
  /// Removes the metrics of all steps after `step`. Call it if a continued run trains those steps again, so
  /// that no step counts twice.
  void remove_metrics_after(int64_t step);

  /// Writes or replaces a file that MLflow shows among the artifacts. `name` is a file name without folders.
  void set_artifact(const std::string& name, const std::string& bytes);

  /// Writes how the run ended. The last call counts.
  void end(MlflowStatus status);

 private:
  void write_meta(MlflowStatus status);

  std::string id_;
  std::string name_;
  std::string experiment_id_;
  std::string folder_;
  int64_t start_milliseconds_ = 0;
  std::map<std::string, std::string> metric_paths_;  // by name; their folders exist
};

}  // namespace lockstep
