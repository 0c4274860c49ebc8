#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::apps {

/// A file or folder below the run directory.
struct RunFile {
  std::string name;    ///< relative to its part of the run directory
  uint64_t bytes = 0;  ///< of a folder: of all in it
};

/// What the files of a run directory say.
struct RunSummary {
  std::string folder;
  std::string program;  ///< that ran, and its version; empty where config.json does not say
  std::string version;
  std::vector<ConfigurationEntry> configuration = {};
  std::optional<int64_t> planned_epochs = {};
  std::vector<MetricRow> epochs = {};  ///< as metrics.jsonl has them
  int64_t num_steps_logged = 0;
  std::optional<MetricRow> end = {};  ///< the totals; absent where the run has not ended, or not by itself
  std::optional<std::string> owner = {};  ///< the process that goes on with it
  std::vector<RunFile> checkpoints = {};
  std::vector<RunFile> event_files = {};  ///< TensorBoard's
  std::optional<uint64_t> report_bytes = {};
  std::vector<std::string> missing = {};  ///< files that a run has, by name
  std::vector<std::string> damages = {};  ///< file, place and what is wrong there
};

/// Reads all of it, as far as it can be read. Throws UsageError where `folder` is no folder, and
/// RunDirectoryError where nothing of a run is in it or it cannot be listed.
RunSummary summarise_run(const std::string& folder);

/// The entry called `name`, or null.
const MetricValue* find_value(const MetricRow& row, const std::string& name);
/// A number of the row's, also where JSON has it as the text "nan", "inf" or "-inf".
std::optional<double> find_number(const MetricRow& row, const std::string& name);

/// The epoch that was best by the first of validation_accuracy, validation_loss, accuracy and loss that there
/// is a number of.
struct BestEpoch {
  size_t index = 0;
  std::string metric;
  double value = 0;
};
std::optional<BestEpoch> best_epoch(const std::vector<MetricRow>& epochs);

/// How the run ended, in a word: completed, stopped_early, interrupted or failed as it said itself, running
/// while a process owns the directory, else ended_early.
std::string run_status(const RunSummary& summary);

}  // namespace lockstep::apps
