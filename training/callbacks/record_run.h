#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/callbacks/tensorboard.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

class StepMemory;

struct RecordRunOptions {
  std::string title = "Training";
  std::vector<ConfigurationEntry> configuration{};  ///< shown in the report
  std::vector<Hyperparameter> hyperparameters{};    ///< shown in TensorBoard's HPARAMS tab
  int64_t log_every = 10;                           ///< records every `log_every`-th step
  /// Writes a histogram of every parameter after each epoch.
  bool histograms = true;
  /// On CPUs, has LibTorch's allocator report the third step's allocations, for RunRecord::memory. LibTorch
  /// may warn then that it does not know the size of older memory, and no other profiler may begin in that
  /// step, but for the callback Profiler. On GPUs, activations are measured in any case.
  bool counts_activations = false;
  /// Name of the validation metric that is a confusion matrix, if there is one.
  std::string confusion = "validation_confusion";
  /// Class names of the confusion matrix; classes without a name are shown by number.
  std::vector<std::string> class_names{};
  /// Plural name of the data's examples in the report.
  std::string examples = "images";
  /// If above 1, the report and the metrics count the parts of an example instead, such as the tokens of a
  /// sequence; `examples` is then the plural name of the parts.
  int64_t parts_per_example = 1;
  /// Names of the hosts that train, shown in the report. If empty, only this process's host is shown.
  std::vector<std::string> hosts{};
  /// When the program began, for RunTotals::start_up_seconds.
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

/// Records a fit in a run directory: metrics.csv (one line per epoch), metrics.jsonl (the start, steps,
/// epochs, the end), event files for TensorBoard in tb/train and tb/validation, and report.html when the run
/// is finished. Only worker 0 writes.
///
/// The loss of a recorded step is the mean over the steps since the previous recorded one, over worker 0's
/// replicas; reading it waits for the devices. If a file cannot be written, the fit ends with a
/// std::system_error that names it.
///
/// Example:
///
///     const RunDirectory directory("runs/first");
///     auto record = std::make_shared<RecordRun>(directory.paths(), RecordRunOptions{.title = "First run"});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {record}});
///     record->finish(RunStatus::kCompleted);
class RecordRun : public Callback {
 public:
  /// `paths` come from a RunDirectory, which must outlive this object. Throws InvalidArgument if log_every or
  /// parts_per_example is below 1.
  RecordRun(const RunPaths& paths, const RecordRunOptions& options = {});
  ~RecordRun() override;

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_end(FitState& state) override;
  void on_fit_end(FitState& state) override;

  /// Adds misclassified validation images to the report and to TensorBoard. `images` may be a selection;
  /// `num_all` is the number of all misclassified images.
  void set_misclassified(std::vector<MisclassifiedImage> images, int64_t num_all);
  /// Adds a text that the model wrote to the report.
  void add_sample(SampleText sample) { record_.samples.push_back(std::move(sample)); }
  /// Sets the work of the model's experts that the report shows.
  void set_expert_load(ExpertLoad load) { record_.expert_load = std::move(load); }
  /// Sets the step of a pipeline that the report shows, and that metrics.jsonl records.
  void set_pipeline(PipelineRecord pipeline) { record_.pipeline = std::move(pipeline); }
  /// Sets the losses that the report compares the validation loss with, in any order.
  void set_reference_losses(std::vector<ReferenceLoss> losses);
  /// Writes the end of metrics.jsonl, ends the TensorBoard session and writes the report. Call it after
  /// fit(), or after an error has ended it; `status` and `reason` tell how it ended. Writes nothing on
  /// workers other than worker 0.
  void finish(RunStatus status, const std::string& reason = "");

  const RunRecord& record() const { return record_; }

 private:
  void write_epoch(const EpochRecord& epoch);
  void measure_memory(const FitState& state);
  /// Turns a number of examples into one of their parts.
  void count_parts(std::optional<double>& examples) const;

  RunPaths paths_;
  RecordRunOptions options_;
  RunRecord record_;
  std::optional<std::chrono::steady_clock::time_point> training_began_;  // none before the first epoch
  std::optional<CsvLog> csv_;
  std::optional<JsonLinesLog> json_lines_;
  TensorBoard tensorboard_;
  StepRecorder steps_;
  std::unique_ptr<StepMemory> step_memory_;  // null before a fit
  int64_t examples_before_ = 0;              // of this epoch, counted already or in an earlier process
};

}  // namespace lockstep
