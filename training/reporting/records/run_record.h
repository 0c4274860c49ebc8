#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/pipeline_record.h"
#include "lockstep/training/reporting/records/rank_memory.h"

namespace lockstep {

/// When, where and by which version of Lockstep a run was started, so that a report that is passed on can be
/// attributed.
struct RunStart {
  std::optional<std::chrono::system_clock::time_point> time = {};  ///< absent if not known
  std::vector<std::string> hosts = {};  ///< names of its machines, the chief's first; empty if not known
  std::string version = "";             ///< of Lockstep, such as 0.1.0; empty if not known

  /// Describes a run that this process starts now, alone.
  static RunStart now();
};

/// One value of a run's configuration.
struct ConfigurationEntry {
  std::string name;
  std::string value;
  /// `default`, or where the value was set: a file, an environment variable, a flag.
  std::string origin = "default";
};

/// Results of a step over all replicas. Values that were not measured are absent.
struct StepRecord {
  int64_t step = 0;  ///< from 1, over all epochs
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> images_per_second = {};
  std::vector<std::pair<std::string, double>> others = {};  ///< other values by name, such as gradient_norm
};

/// Results of an epoch over all replicas. Shares are between 0 and 1. Values that were not measured are
/// absent.
struct EpochRecord {
  int64_t epoch = 0;  ///< from 1
  int64_t step = 0;   ///< steps done by its end, over all epochs
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
  std::optional<double> validation_loss = {};
  std::optional<double> validation_accuracy = {};
  std::optional<double> learning_rate = {};  ///< at the end of the epoch
  std::optional<double> images_per_second = {};
  std::optional<double> data_wait_share = {};  ///< share of the steps' time spent waiting for data
  std::optional<double> seconds = {};          ///< duration, validation included
  /// Other values by name; validation_x belongs to x.
  std::vector<std::pair<std::string, double>> others = {};
};

/// Counts of predicted classes for each true class.
struct ConfusionCounts {
  std::vector<std::string> class_names;
  std::vector<int64_t> counts;  ///< [true class][predicted class], row by row
};

struct MisclassifiedImage {
  std::vector<uint8_t> png;  ///< a whole PNG file
  std::string true_class;
  std::string predicted_class;
  double confidence = 0;  ///< probability of the predicted class
};

enum class RunStatus {
  kCompleted,
  kStoppedEarly,  ///< as requested, for example by early stopping
  kInterrupted,   ///< by a signal
  kFailed,
};

struct RunTotals {
  RunStatus status = RunStatus::kCompleted;
  std::string reason = "";  ///< why it ended, if it did not complete
  int64_t epochs = 0;
  int64_t steps = 0;
  /// Images trained on, counted each time they were used.
  int64_t images = 0;
  double seconds = 0;           ///< of training and validation in this process
  double start_up_seconds = 0;  ///< before them: data is read, and a checkpoint restored
  int64_t steps_before = 0;     ///< those of `steps` that an earlier process made, which this one resumed
};

/// Memory of a process's replicas by what it holds, in bytes. Memory that is shared counts once. Values that
/// were not measured are absent.
struct MemoryRecord {
  int64_t parameters = 0;
  int64_t buffers = 0;  ///< of the model, such as running statistics
  /// Outside of communication buckets. With several replicas, most gradients are in these.
  int64_t gradients = 0;
  std::optional<int64_t> optimizer_state = {};
  int64_t communication_buckets = 0;
  /// The most that a step needs besides the above: activations, temporary values and gradients on their way.
  std::optional<int64_t> activations = {};
  std::optional<int64_t> peak = {};
  bool is_of_process = false;  ///< whether the peak is the process's resident memory, else of tensors on GPUs
  std::vector<RankMemory> ranks = {};  ///< the memory of each of these replicas for its model, in their order
};

/// A text that a language model wrote.
struct SampleText {
  std::string title;   ///< when, such as "step 500"
  std::string prompt;  ///< what the model was given to continue; may be empty
  std::string text;    ///< what the model wrote
};

/// The work of the experts of a model's layers.
struct ExpertLoad {
  std::string when;  ///< such as "Steps up to 500"
  int64_t num_experts = 0;
  std::vector<double> loads;  ///< [layer][expert], row by row, as multiples of an even share
};

/// A loss that the validation loss is compared with, such as that of another model.
struct ReferenceLoss {
  std::string name;
  double loss = 0;
};

/// Everything that a report shows about a run.
struct RunRecord {
  std::string title;
  std::string examples = "images";  ///< plural name of the data's examples
  RunStart start = {};
  std::vector<ConfigurationEntry> configuration = {};
  std::vector<StepRecord> steps = {};  ///< the logged steps
  std::vector<EpochRecord> epochs = {};
  std::optional<ConfusionCounts> confusion = {};
  std::vector<MisclassifiedImage> misclassified = {};  ///< some of the misclassified images
  std::optional<int64_t> num_misclassified = {};       ///< number of all misclassified images
  std::optional<MemoryRecord> memory = {};
  std::vector<SampleText> samples = {};  ///< the oldest first
  std::optional<ExpertLoad> expert_load = {};
  std::optional<PipelineRecord> pipeline = {};
  std::vector<ReferenceLoss> reference_losses = {};  ///< the lowest first
  RunTotals totals = {};
};

/// Returns completed, stopped_early, interrupted or failed.
std::string status_name(RunStatus status);

/// Return the rows of metrics.csv (one per epoch) and of metrics.jsonl. Absent values have no entry. In
/// metrics.jsonl each row starts with a "kind": "start", "step", "epoch", "memory", "memory_of_rank",
/// "pipeline", "pipeline_action", or "end" for the totals, which close the file; with_kind() adds it. A name
/// in `others` that the record already has is left out.
MetricRow metric_row(const RunStart& start);
MetricRow metric_row(const StepRecord& step);
MetricRow metric_row(const EpochRecord& epoch);
MetricRow metric_row(const MemoryRecord& memory);
MetricRow metric_row(const RunTotals& totals);
MetricRow with_kind(const std::string& kind, MetricRow row);

}  // namespace lockstep
