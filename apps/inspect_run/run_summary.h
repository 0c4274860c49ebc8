#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::apps {

/// A file or folder in the run directory.
struct RunFile {
  std::string name;    ///< relative to its part of the run directory
  uint64_t bytes = 0;  ///< for a folder, the total of its files
};

/// Summary of the files in a run directory.
struct RunSummary {
  std::string folder;
  /// The program that ran and its version; empty if config.json does not say.
  std::string program;
  std::string version;
  std::vector<ConfigurationEntry> configuration = {};
  std::optional<int64_t> planned_epochs = {};
  /// When, where and by which version the run was started, as in metrics.jsonl; none if it does not say.
  std::optional<MetricRow> start = {};
  std::vector<MetricRow> epochs = {};  ///< as in metrics.jsonl
  int64_t num_steps_logged = 0;
  /// The totals; none if the run has not ended or was killed.
  std::optional<MetricRow> end = {};
  std::optional<std::string> owner = {};  ///< process that owns the directory
  std::vector<RunFile> checkpoints = {};
  std::vector<RunFile> event_files = {};  ///< TensorBoard's files
  std::optional<uint64_t> report_bytes = {};
  std::vector<std::string> missing = {};  ///< names of expected files that are missing
  std::vector<std::string> damages = {};  ///< file, place and problem of each
};

/// Reads whatever is readable in the run directory. Throws UsageError if `folder` is not a folder, and
/// RunDirectoryError if it contains nothing of a run or cannot be listed.
RunSummary summarise_run(const std::string& folder);

/// Returns the entry called `name`, or null.
const MetricValue* find_value(const MetricRow& row, const std::string& name);
/// Returns a number of the row, or none. Also accepts JSON's texts "nan", "inf" and "-inf".
std::optional<double> find_number(const MetricRow& row, const std::string& name);

/// The best epoch, by the first of these metrics that has a number: validation_accuracy, validation_loss,
/// accuracy, loss.
struct BestEpoch {
  size_t index = 0;
  std::string metric;
  double value = 0;
};
std::optional<BestEpoch> best_epoch(const std::vector<MetricRow>& epochs);

/// Returns the run's status as one word: completed, stopped_early, interrupted or failed as the run recorded
/// it; running if a process owns the directory; otherwise ended_early.
std::string run_status(const RunSummary& summary);

}  // namespace lockstep::apps
