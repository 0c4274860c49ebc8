#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"

namespace lockstep {

/// One value of a run's configuration.
struct ConfigurationEntry {
  std::string name;
  std::string value;
  std::string origin = "default";  ///< default, or what set it: a file, a variable of the environment, a flag
};

/// What a step came to, over all replicas. What was not measured is absent.
struct StepRecord {
  int64_t step = 0;  ///< from 1, over all epochs
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> images_per_second = {};
  std::vector<std::pair<std::string, double>> others = {};  ///< by name, such as gradient_norm
};

/// What an epoch came to, over all replicas. Shares lie between 0 and 1; what was not measured is absent.
struct EpochRecord {
  int64_t epoch = 0;  ///< from 1
  int64_t step = 0;   ///< done by its end, over all epochs
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
  std::optional<double> validation_loss = {};
  std::optional<double> validation_accuracy = {};
  std::optional<double> learning_rate = {};  ///< at its end
  std::optional<double> images_per_second = {};
  std::optional<double> data_wait_share = {};               ///< of the time that steps took
  std::optional<double> seconds = {};                       ///< with the validation
  std::vector<std::pair<std::string, double>> others = {};  ///< by name; validation_x goes with x
};

/// How often each class was taken for each.
struct ConfusionCounts {
  std::vector<std::string> class_names;
  std::vector<int64_t> counts;  ///< [true class][predicted class], row by row
};

struct MisclassifiedImage {
  std::vector<uint8_t> png;  ///< a whole file
  std::string true_class;
  std::string predicted_class;
  double confidence = 0;  ///< the predicted class' probability
};

enum class RunStatus {
  kCompleted,
  kStoppedEarly,  ///< as it was told to, by early stopping for one
  kInterrupted,   ///< by a signal
  kFailed,
};

struct RunTotals {
  RunStatus status = RunStatus::kCompleted;
  std::string reason = "";  ///< why it ended, where it did not complete
  int64_t epochs = 0;
  int64_t steps = 0;
  int64_t images = 0;  ///< trained on, each as often as it was
  double seconds = 0;
};

/// All that a report tells of a run.
struct RunRecord {
  std::string title;
  std::vector<ConfigurationEntry> configuration = {};
  std::vector<StepRecord> steps = {};  ///< the logged ones
  std::vector<EpochRecord> epochs = {};
  std::optional<ConfusionCounts> confusion = {};
  std::vector<MisclassifiedImage> misclassified = {};  ///< some of them
  std::optional<int64_t> num_misclassified = {};       ///< all of them
  RunTotals totals = {};
};

/// completed, stopped_early, interrupted or failed.
std::string status_name(RunStatus status);

/// The rows of metrics.csv, an epoch each, and of metrics.jsonl: what is absent has no entry. In
/// metrics.jsonl a first entry "kind" tells them apart: "step", "epoch", and "end" for the totals, which
/// close the file. A name among `others` that a record has itself is left out.
MetricRow metric_row(const StepRecord& step);
MetricRow metric_row(const EpochRecord& epoch);
MetricRow metric_row(const RunTotals& totals);
MetricRow with_kind(const std::string& kind, MetricRow row);

}  // namespace lockstep
